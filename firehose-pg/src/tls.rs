//! Encryption, the same for both drivers: what is believed of the server's certificate.

use std::sync::Arc;

use firehose_core::{Error, ErrorKind, Result};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::target::{Roots, Target, TlsMode};

const OPERATION: &str = "tls";

/// What the two drivers need to encrypt.
#[derive(Clone)]
pub(crate) struct Tls {
    pub(crate) connector: MakeRustlsConnect,
    /// The roots as PEM text, where the certificate is verified.
    pub(crate) pem: Option<Arc<[u8]>>,
}

impl Tls {
    /// Reads what `target` asks for; its file of roots is read now, once.
    ///
    /// # Errors
    /// [`ErrorKind::Tls`] where there are no roots to verify with.
    pub(crate) fn new(target: &Target) -> Result<Self> {
        let provider = Arc::new(ring::default_provider());
        let (verifier, pem): (Arc<dyn ServerCertVerifier>, _) = match target.tls {
            TlsMode::Disable | TlsMode::Prefer | TlsMode::Require => (Arc::new(AnyCertificate(provider.clone())), None),
            mode @ (TlsMode::VerifyCa | TlsMode::VerifyFull) => {
                let certificates = read_roots(&target.roots)?;
                let mut store = RootCertStore::empty();
                store.add_parsable_certificates(certificates.iter().cloned());
                let chain = WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider.clone())
                    .build()
                    .map_err(|e| broken("no root certificate can be used").with_source(e))?;
                let verifier: Arc<dyn ServerCertVerifier> = match mode {
                    TlsMode::VerifyCa => Arc::new(AnyName(chain)),
                    _ => chain,
                };
                (verifier, Some(to_pem(&certificates)))
            }
        };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| broken("no protocol version can be used").with_source(e))?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        Ok(Self { connector: MakeRustlsConnect::new(config), pem })
    }
}

fn broken(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Tls, OPERATION, what)
}

fn read_roots(roots: &Roots) -> Result<Vec<CertificateDer<'static>>> {
    let found: Vec<_> = match roots {
        Roots::File(path) => {
            let unreadable = |e: &dyn std::fmt::Display| broken(format!("sslrootcert {}: {e}", path.display()));
            CertificateDer::pem_file_iter(path)
                .map_err(|e| unreadable(&e))?
                .collect::<Result<_, _>>()
                .map_err(|e| unreadable(&e))?
        }
        Roots::System => rustls_native_certs::load_native_certs().certs,
    };
    match found.is_empty() {
        false => Ok(found),
        true => Err(broken("there is no root certificate to verify with")
            .with_hint("name the file with sslrootcert, or install the system's certificates")),
    }
}

/// sqlx takes roots as PEM text only.
fn to_pem(certificates: &[CertificateDer<'_>]) -> Arc<[u8]> {
    use base64::Engine as _;
    let mut text = String::new();
    for certificate in certificates {
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        let body = base64::engine::general_purpose::STANDARD.encode(certificate);
        for line in body.as_bytes().chunks(64) {
            text.extend(line.iter().map(|&b| char::from(b)));
            text.push('\n');
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text.into_bytes().into()
}

/// Takes any certificate: the connection is encrypted, and nobody knows with whom (`prefer`, `require`).
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Holds a certificate against the roots, whatever host it names (`verify-ca`).
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match self.0.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
