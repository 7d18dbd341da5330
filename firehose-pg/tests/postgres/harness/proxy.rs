//! A TCP proxy that can go silent: it keeps its connections open and carries nothing.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Stands between a client and the server.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    frozen: Arc<watch::Sender<u64>>,
    _tasks: JoinSet<()>,
}

impl Proxy {
    pub(crate) async fn to(server_port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let port = listener.local_addr().expect("its number").port();
        let frozen = Arc::new(watch::Sender::new(0));
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, SocketAddr::from(([127, 0, 0, 1], server_port)), frozen.clone()));
        Self { port, frozen, _tasks: tasks }
    }

    /// All connections of the moment go silent for good; later ones work.
    pub(crate) fn freeze(&self) {
        self.frozen.send_modify(|n| *n += 1);
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, frozen: Arc<watch::Sender<u64>>) {
    let mut pairs = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let mut silence = frozen.subscribe();
        silence.mark_unchanged();
        pairs.spawn(async move {
            let Ok(server) = TcpStream::connect(server).await else { return };
            let (mut client_in, mut client_out) = client.into_split();
            let (mut server_in, mut server_out) = server.into_split();
            let there = async {
                let mut bytes = vec![0; 65_536];
                while let Ok(n @ 1..) = client_in.read(&mut bytes).await {
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
                Ok(()) = silence.changed() => {}
                () = there => return,
                () = back => return,
            }
            // Both sockets stay open, and nobody reads them.
            std::future::pending::<()>().await;
        });
    }
}
