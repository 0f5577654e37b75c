//! What a cluster can do, as it tells itself.

use std::time::Duration;

use tonic::Code;

use crate::connection::{fault, silent, Connection, Fault};
use crate::reapi::capabilities_client::CapabilitiesClient;
use crate::reapi::{compressor, digest_function, GetCapabilitiesRequest, ServerCapabilities};

/// gRPC's own limit for a message, which servers rarely raise; with some room for what is around contents.
pub const MESSAGE: usize = 4 << 20;
const AROUND: usize = 64 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// The most bytes of contents in one call with many of them.
    pub batch: usize,
    /// The most bytes of one content.
    pub largest: u64,
    /// Contents may be packed by zstd where they come in pieces.
    pub has_packed_streams: bool,
    /// Results may be written.
    pub takes_results: bool,
    /// Commands may be run.
    pub executes: bool,
}

impl Default for Capabilities {
    /// Of a server that does not tell.
    fn default() -> Capabilities {
        Capabilities {
            batch: MESSAGE - AROUND,
            largest: u64::MAX,
            has_packed_streams: false,
            takes_results: true,
            executes: true,
        }
    }
}

impl Capabilities {
    /// Asks for them.
    pub async fn ask(connection: &Connection, time: Duration) -> Result<Capabilities, Fault> {
        let request = GetCapabilitiesRequest {
            instance_name: connection.instance().to_owned(),
        };
        let mut client = CapabilitiesClient::new(connection.channel());
        match tokio::time::timeout(time, client.get_capabilities(request)).await {
            Err(_) => Err(silent(time)),
            Ok(Ok(answer)) => Capabilities::read(&answer.into_inner()),
            Ok(Err(status)) if status.code() == Code::Unimplemented => Ok(Capabilities::default()),
            Ok(Err(status)) => Err(fault(&status)),
        }
    }

    fn read(told: &ServerCapabilities) -> Result<Capabilities, Fault> {
        let usual = Capabilities::default();
        let execution = told.execution_capabilities.as_ref();
        let executes = execution.is_some_and(|execution| execution.exec_enabled);
        let Some(cache) = &told.cache_capabilities else {
            return Ok(Capabilities { executes, ..usual });
        };
        let has = |all: &[i32], one: i32| all.contains(&one);
        let sha = digest_function::Value::Sha256 as i32;
        if !cache.digest_functions.is_empty() && !has(&cache.digest_functions, sha) {
            return Err(Fault::Failed("it does not offer SHA-256".to_owned()));
        }
        let batch = usize::try_from(cache.max_batch_total_size_bytes).unwrap_or_default();
        let largest = u64::try_from(cache.max_cas_blob_size_bytes).unwrap_or_default();
        let updates = cache.action_cache_update_capabilities.as_ref();
        Ok(Capabilities {
            batch: if batch == 0 { usual.batch } else { batch.min(usual.batch) },
            largest: if largest == 0 { usual.largest } else { largest },
            has_packed_streams: has(&cache.supported_compressors, compressor::Value::Zstd as i32),
            takes_results: updates.is_none_or(|updates| updates.update_enabled),
            executes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reapi::{ActionCacheUpdateCapabilities, CacheCapabilities};

    fn read(cache: CacheCapabilities) -> Result<Capabilities, Fault> {
        Capabilities::read(&ServerCapabilities {
            cache_capabilities: Some(cache),
            ..ServerCapabilities::default()
        })
    }

    #[test]
    fn limits_of_the_server_hold_and_none_exceeds_ours() {
        let of = |max_batch_total_size_bytes| {
            let cache = CacheCapabilities {
                max_batch_total_size_bytes,
                ..CacheCapabilities::default()
            };
            read(cache).unwrap().batch
        };
        let usual = Capabilities::default().batch;
        assert_eq!((of(0), of(-1), of(1000), of(i64::MAX)), (usual, usual, 1000, usual));
    }

    #[test]
    fn a_server_without_sha_256_is_of_no_use() {
        let with = |digest_functions| {
            read(CacheCapabilities {
                digest_functions,
                ..CacheCapabilities::default()
            })
        };
        assert!(with(vec![digest_function::Value::Blake3 as i32]).is_err());
        assert!(with(vec![digest_function::Value::Md5 as i32, digest_function::Value::Sha256 as i32]).is_ok());
    }

    #[test]
    fn a_server_may_take_no_results() {
        let with = |update_enabled| {
            read(CacheCapabilities {
                action_cache_update_capabilities: Some(ActionCacheUpdateCapabilities { update_enabled }),
                ..CacheCapabilities::default()
            })
        };
        assert!(with(true).unwrap().takes_results && !with(false).unwrap().takes_results);
    }
}
