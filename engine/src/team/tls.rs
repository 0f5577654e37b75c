//! TLS: the certificates of the server, and a socket with or without encryption.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};

use super::token_file::status_of;
use crate::facts::status::Status;

/// How many plain bytes may wait to be encrypted.
const UNSENT: usize = 64 << 10;

/// The files of `--tls-cert` and related options. If one of them changes, they are read again for new connections.
#[derive(Debug)]
pub struct CertificateFiles {
    certificates: PathBuf,
    key: PathBuf,
    /// The authorities that sign the certificates of clients. Without them, clients need no certificate.
    clients: Option<PathBuf>,
    read: Vec<Option<Status>>,
}

impl CertificateFiles {
    pub fn new(certificates: PathBuf, key: PathBuf, clients: Option<PathBuf>) -> CertificateFiles {
        CertificateFiles {
            certificates,
            key,
            clients,
            read: Vec::new(),
        }
    }

    /// The new configuration, if a file has changed since they were read. An error is returned once.
    pub fn changed(&mut self) -> Option<Result<Arc<ServerConfig>, String>> {
        let files = [&self.certificates, &self.key].into_iter().chain(&self.clients);
        let found: Vec<_> = files.map(|file| status_of(file)).collect();
        if found == self.read {
            return None;
        }
        self.read = found;
        Some(self.config().map(Arc::new))
    }

    fn config(&self) -> Result<ServerConfig, String> {
        let certificates = certificates(&self.certificates)?;
        let named = |path: &Path, error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let key = PrivateKeyDer::from_pem_file(&self.key);
        let key = key.map_err(|error| format!("private key {}", named(&self.key, &error)))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("TLS: {error}"))?;
        let builder = match &self.clients {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let wrong = |error: &dyn std::fmt::Display| format!("certificates {}", named(path, error));
                let mut roots = RootCertStore::empty();
                for certificate in self::certificates(path)? {
                    roots.add(certificate).map_err(|error| wrong(&error))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build();
                builder.with_client_cert_verifier(verifier.map_err(|error| wrong(&error))?)
            }
        };
        let config = builder.with_single_cert(certificates, key);
        config.map_err(|error| format!("certificates {}", named(&self.certificates, &error)))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let named = |error: &dyn std::fmt::Display| format!("certificates {}: {error}", path.display());
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path)
        .map_err(|error| named(&error))?
        .collect();
    let found = found.map_err(|error| named(&error))?;
    match found.is_empty() {
        true => Err(named(&"there is none in it")),
        false => Ok(found),
    }
}

/// The socket of a connection, with or without TLS.
pub struct Wire {
    pub socket: TcpStream,
    tls: Option<Box<ServerConnection>>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    Bytes(usize),
    Nothing,
    End,
}

impl Wire {
    pub fn new(socket: TcpStream, config: Option<&Arc<ServerConfig>>) -> io::Result<Wire> {
        let open = |config: &Arc<ServerConfig>| {
            let mut tls = ServerConnection::new(config.clone()).map_err(io::Error::other)?;
            tls.set_buffer_limit(Some(UNSENT));
            Ok::<_, io::Error>(Box::new(tls))
        };
        Ok(Wire {
            socket,
            tls: config.map(open).transpose()?,
        })
    }

    /// Reads once. The result is `End` when nothing more will come.
    pub fn receive(&mut self, to: &mut [u8]) -> io::Result<Received> {
        let Some(tls) = &mut self.tls else {
            return unless_blocked((&self.socket).read(to)).map(|read| match read {
                None => Received::Nothing,
                Some(0) => Received::End,
                Some(n) => Received::Bytes(n),
            });
        };
        let came = if tls.wants_read() {
            unless_blocked(tls.read_tls(&mut &self.socket))?
        } else {
            None
        };
        let processed = tls.process_new_packets().map_err(io::Error::other);
        if processed.is_err() {
            // Sends the alert that tells the peer the reason.
            let _ = tls.write_tls(&mut &self.socket);
        }
        processed?;
        match tls.reader().read(to) {
            Ok(0) => Ok(Received::End),
            Ok(n) => Ok(Received::Bytes(n)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(match came {
                Some(0) => Received::End,
                _ => Received::Nothing,
            }),
            Err(error) => Err(error),
        }
    }

    /// Whether input was already decrypted, which epoll does not report.
    pub fn holds_more(&mut self) -> bool {
        self.tls.as_mut().is_some_and(|tls| {
            tls.process_new_packets()
                .is_ok_and(|state| state.plaintext_bytes_to_read() > 0)
        })
    }

    /// Sends bytes, and returns how many were accepted.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else {
            return unless_blocked((&self.socket).write(bytes)).map(|sent| sent.unwrap_or(0));
        };
        let taken = tls.writer().write(bytes)?;
        self.flush()?;
        Ok(taken)
    }

    /// Sends records that were already encrypted.
    pub fn flush(&mut self) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            while tls.wants_write() {
                if unless_blocked(tls.write_tls(&mut &self.socket))?.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }

    pub fn has_unsent(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Tells the peer that nothing more will be sent.
    pub fn shut(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            let _ = self.flush();
        }
        let _ = self.socket.shutdown(std::net::Shutdown::Write);
    }
}

/// `None` if the call would block.
fn unless_blocked(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
        other => other.map(Some),
    }
}
