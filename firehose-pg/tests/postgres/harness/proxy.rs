//! A TCP proxy that can go silent: it keeps its connections open, takes new ones, and carries nothing.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How the network is.
#[derive(Debug, Clone, Copy, Default)]
struct Network {
    /// How often it went silent. What was open then stays silent for good.
    silences: u64,
    /// Whether what is opened now is silent too.
    dark: bool,
    /// Whether the word LISTEN comes out as one that the server does not know.
    misspelt: bool,
}

/// Stands between a client and the server.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    network: Arc<watch::Sender<Network>>,
    _tasks: JoinSet<()>,
}

impl Proxy {
    pub(crate) async fn to(server_port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let port = listener.local_addr().expect("its number").port();
        let network = Arc::new(watch::Sender::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, SocketAddr::from(([127, 0, 0, 1], server_port)), network.clone()));
        Self { port, network, _tasks: tasks }
    }

    /// All connections of the moment go silent for good; later ones work.
    pub(crate) fn freeze(&self) {
        self.network.send_modify(|network| network.silences += 1);
    }

    /// All connections go silent, and new ones are so from the beginning.
    pub(crate) fn black_out(&self) {
        self.network.send_modify(|network| {
            network.silences += 1;
            network.dark = true;
        });
    }

    /// The server refuses every LISTEN, as it would one that it does not allow; or no longer.
    pub(crate) fn misspell_listen(&self, misspelt: bool) {
        self.network.send_modify(|network| network.misspelt = misspelt);
    }

    /// New connections work again.
    pub(crate) fn heal(&self) {
        self.network.send_modify(|network| network.dark = false);
    }
}

/// Statements travel as text, and short ones in one piece.
fn misspell(bytes: &mut [u8]) {
    let word = b"LISTEN \"";
    while let Some(at) = bytes.windows(word.len()).position(|some| some == word) {
        bytes[at..at + 6].copy_from_slice(b"LISTEM");
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, network: Arc<watch::Sender<Network>>) {
    let mut pairs = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let mut watched = network.subscribe();
        let Network { silences, dark, .. } = *watched.borrow_and_update();
        let network = network.clone();
        pairs.spawn(async move {
            if dark {
                // Taken, and never answered.
                let _open = client;
                return std::future::pending().await;
            }
            let Ok(server) = TcpStream::connect(server).await else { return };
            let (mut client_in, mut client_out) = client.into_split();
            let (mut server_in, mut server_out) = server.into_split();
            let spelling = network.clone();
            let there = async move {
                let mut bytes = vec![0; 65_536];
                while let Ok(n @ 1..) = client_in.read(&mut bytes).await {
                    if spelling.borrow().misspelt {
                        misspell(&mut bytes[..n]);
                    }
                    if server_out.write_all(&bytes[..n]).await.is_err() {
                        break;
                    }
                }
            };
            let back = async {
                let mut bytes = vec![0; 65_536];
                while let Ok(n @ 1..) = server_in.read(&mut bytes).await {
                    if client_out.write_all(&bytes[..n]).await.is_err() {
                        break;
                    }
                }
            };
            tokio::select! {
                biased;
                Ok(_) = watched.wait_for(|network| network.silences > silences) => {}
                () = there => return,
                () = back => return,
            }
            // Both sockets stay open, and nobody reads them.
            std::future::pending::<()>().await;
        });
    }
}
