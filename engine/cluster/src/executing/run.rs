//! Runs one action on the cluster, and gets the entry that its worker has made.

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use bazel_remote_apis::google::longrunning::{operation, Operation};
use bytes::Bytes;
use prost::Message;
use tonic::{Code, Status, Streaming};
use wafengine::bytes::digest::Digest as Key;
use wafengine::cluster::message::{Failure, LARGEST_BLOB, MOST_BYTES};
use wafengine::cluster::FOLDER;

use super::action::{Prepared, BLOBS, FACTS, KEY, TROUBLE, WHY};
use super::uploads::Uploads;
use crate::connection::{fault, Connection, Fault};
use crate::contents::Contents;
use crate::digests::Digest;
use crate::reapi::execution_client::ExecutionClient;
use crate::reapi::{ActionResult, ExecuteRequest, ExecuteResponse, ExecutionPolicy, Tree, WaitExecutionRequest};

/// For so long a cluster may be busy before it says that it has taken a command.
const FIRST_WORD: Duration = Duration::from_secs(5);
/// How often a stream that has ended early is begun again.
const MOST_STREAMS: usize = 4;
const LARGEST_WORDS: usize = 200;
/// Servers have one code for both.
const LOSES: &str = "it loses contents, or has no worker with these properties";

/// Why there is no entry, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem(pub Failure, pub String);

impl From<Fault> for Problem {
    fn from(fault: Fault) -> Problem {
        match fault {
            Fault::Silent(words) => Problem(Failure::Silent, words),
            Fault::Failed(words) => Problem(Failure::Failed, words),
            Fault::Declined(words) => Problem(Failure::Declined, words),
        }
    }
}

/// What a worker has made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    pub key: Key,
    pub entry: Bytes,
    pub blobs: Vec<Bytes>,
}

enum Attempt {
    Made(Made),
    /// The cluster lacks some of the inputs, or of the results. The second word says whether an earlier result is the cause.
    Lost {
        was_known: bool,
    },
}

/// Runs it. What the cluster has lost is brought once more.
pub async fn run(
    connection: &Connection,
    contents: &Contents,
    uploads: &Uploads,
    prepared: &Prepared,
    priority: i32,
) -> Result<Made, Problem> {
    let mut is_fresh = false;
    for _ in 0..2 {
        uploads.bring(&prepared.blobs).await?;
        match attempt(connection, contents, &prepared.action, priority, is_fresh).await? {
            Attempt::Made(made) => return Ok(made),
            Attempt::Lost { was_known } => {
                is_fresh |= was_known;
                uploads.forget();
            }
        }
    }
    Err(Problem(Failure::Failed, LOSES.to_owned()))
}

async fn attempt(
    connection: &Connection,
    contents: &Contents,
    action: &Digest,
    priority: i32,
    is_fresh: bool,
) -> Result<Attempt, Problem> {
    let request = ExecuteRequest {
        instance_name: connection.instance().to_owned(),
        action_digest: Some(action.to_message()),
        // An earlier result is looked up by its contents, of which some are gone.
        skip_cache_lookup: is_fresh,
        execution_policy: (priority != 0).then_some(ExecutionPolicy { priority }),
        ..ExecuteRequest::default()
    };
    let response = match finish(connection, request).await {
        Ok(response) => response,
        Err(Unfinished::Lost) => return Ok(Attempt::Lost { was_known: false }),
        Err(Unfinished::Fault(fault)) => return Err(fault.into()),
    };
    let status = response.status.unwrap_or_default();
    match Code::from(status.code) {
        Code::Ok => {}
        Code::FailedPrecondition | Code::NotFound => return Ok(Attempt::Lost { was_known: false }),
        Code::DeadlineExceeded => return Err(Problem(Failure::Declined, "it took too long there".to_owned())),
        _ => return Err(fault(&Status::new(status.code.into(), status.message)).into()),
    }
    let result = response.result.unwrap_or_default();
    match collect(contents, &result).await? {
        Some(made) => Ok(Attempt::Made(made)),
        None => Ok(Attempt::Lost {
            was_known: response.cached_result,
        }),
    }
}

enum Unfinished {
    Lost,
    Fault(Fault),
}

impl From<Status> for Unfinished {
    fn from(status: Status) -> Unfinished {
        match status.code() {
            // So a server says that inputs are missing.
            Code::FailedPrecondition => Unfinished::Lost,
            _ => Unfinished::Fault(fault(&status)),
        }
    }
}

/// Waits until the command has ended. The caller limits the time of that.
async fn finish(connection: &Connection, request: ExecuteRequest) -> Result<ExecuteResponse, Unfinished> {
    let mut client = ExecutionClient::new(connection.channel()).max_decoding_message_size(16 << 20);
    let mut stream = first_word(client.execute(request)).await?;
    let mut name = String::new();
    for _ in 0..MOST_STREAMS {
        let mut is_first = true;
        loop {
            let next = match is_first {
                true => first_word_of(&mut stream).await,
                false => stream.message().await.map_err(Unfinished::from),
            };
            is_first = false;
            match next {
                Ok(Some(operation)) if operation.done => return answer(operation),
                Ok(Some(operation)) => name = operation.name,
                // A proxy between us may end streams that live for long.
                Ok(None) => break,
                Err(Unfinished::Fault(Fault::Failed(words))) if !name.is_empty() => {
                    log::debug!("the stream of {name} broke: {words}");
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        if name.is_empty() {
            break;
        }
        let request = WaitExecutionRequest { name: name.clone() };
        stream = first_word(client.wait_execution(request)).await?;
    }
    Err(Unfinished::Fault(Fault::Failed("it told no result".to_owned())))
}

async fn first_word<T>(answer: impl Future<Output = Result<tonic::Response<T>, Status>>) -> Result<T, Unfinished> {
    match tokio::time::timeout(FIRST_WORD, answer).await {
        Ok(answer) => Ok(answer?.into_inner()),
        Err(_) => Err(Unfinished::Fault(crate::connection::silent(FIRST_WORD))),
    }
}

async fn first_word_of(stream: &mut Streaming<Operation>) -> Result<Option<Operation>, Unfinished> {
    match tokio::time::timeout(FIRST_WORD, stream.message()).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(Unfinished::Fault(crate::connection::silent(FIRST_WORD))),
    }
}

fn answer(operation: Operation) -> Result<ExecuteResponse, Unfinished> {
    let garbled = || Unfinished::Fault(Fault::Failed("its answer is none".to_owned()));
    match operation.result {
        Some(operation::Result::Response(any)) => ExecuteResponse::decode(&any.value[..]).map_err(|_| garbled()),
        Some(operation::Result::Error(status)) => Err(Status::new(status.code.into(), status.message).into()),
        None => Err(garbled()),
    }
}

/// The entry and its blobs. None if the cluster has lost some of it.
async fn collect(contents: &Contents, result: &ActionResult) -> Result<Option<Made>, Problem> {
    let place = |name: &str| format!("{FOLDER}/{name}");
    let garbled = || Problem(Failure::Failed, "its answer is none".to_owned());
    let mut inline: HashMap<&str, Bytes> = HashMap::new();
    let mut wanted: HashMap<&str, Digest> = HashMap::new();
    for name in [KEY, FACTS, WHY, TROUBLE] {
        let Some(file) = result.output_files.iter().find(|file| file.path == place(name)) else {
            continue;
        };
        let digest = file
            .digest
            .as_ref()
            .and_then(Digest::from_message)
            .ok_or_else(garbled)?;
        match Digest::of(&file.contents) == digest {
            true => drop(inline.insert(name, Bytes::copy_from_slice(&file.contents))),
            false => drop(wanted.insert(name, digest)),
        }
    }
    let folder = result
        .output_directories
        .iter()
        .find(|folder| folder.path == place(BLOBS));
    if let Some(folder) = folder {
        let digest = folder.tree_digest.as_ref().and_then(Digest::from_message);
        wanted.insert(BLOBS, digest.ok_or_else(garbled)?);
    }
    let digests: Vec<Digest> = wanted.values().copied().collect();
    let came = contents.read_all(&digests, LARGEST_BLOB as u64).await?;
    for (name, digest) in wanted {
        let Some(bytes) = came.get(&digest) else {
            return Ok(None);
        };
        inline.insert(name, bytes.clone());
    }
    let (Some(key), Some(entry)) = (inline.get(KEY), inline.get(FACTS)) else {
        return Err(match (inline.get(WHY), inline.get(TROUBLE)) {
            (Some(why), _) => Problem(Failure::NoEntry, line(why)),
            // Another command fares no better there.
            (None, Some(trouble)) => Problem(Failure::Failed, line(trouble)),
            (None, None) => Problem(Failure::Failed, no_words(result.exit_code)),
        });
    };
    let key = std::str::from_utf8(key)
        .ok()
        .and_then(|text| text.trim_end().parse().ok());
    let tree = inline.get(BLOBS).map(|bytes| Tree::decode(bytes.clone()));
    let files = match tree {
        None => Vec::new(),
        Some(tree) => tree.map_err(|_| garbled())?.root.unwrap_or_default().files,
    };
    let digests = files
        .iter()
        .map(|file| file.digest.as_ref().and_then(Digest::from_message));
    let digests: Vec<Digest> = digests.collect::<Option<_>>().ok_or_else(garbled)?;
    if digests.iter().any(|digest| digest.size > LARGEST_BLOB as u64) {
        return Err(Problem(Failure::Declined, "its result is too large".to_owned()));
    }
    let came = contents.read_all(&digests, MOST_BYTES as u64).await?;
    let blobs: Option<Vec<Bytes>> = digests.iter().map(|digest| came.get(digest).cloned()).collect();
    let key = key.ok_or_else(garbled)?;
    Ok(blobs.map(|blobs| Made {
        key,
        entry: entry.clone(),
        blobs,
    }))
}

/// A worker's own words, as far as they are fit to be shown.
fn line(words: &Bytes) -> String {
    let text = String::from_utf8_lossy(words);
    let line = text.lines().next().unwrap_or_default().trim();
    line.chars().filter(|c| !c.is_control()).take(LARGEST_WORDS).collect()
}

/// A worker that is ours says why.
fn no_words(status: i32) -> String {
    format!("its worker has made no entry, and is none of ours; the command ended with status {status}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contents::Source;
    use crate::reapi::{Directory, FileNode, OutputDirectory, OutputFile};
    use crate::test_support::{Cluster, Memory};
    use std::sync::Arc;

    struct Lab {
        cluster: Cluster,
        connection: Connection,
        contents: Contents,
        uploads: Uploads,
    }

    impl Lab {
        async fn start() -> Lab {
            let (cluster, mut address) = Cluster::start().await;
            address.limits.silence = Duration::from_secs(20);
            let connection = Connection::new(&address).unwrap();
            let contents = Contents::new(&connection, address.limits);
            let uploads = Uploads::new(&contents);
            Lab {
                cluster,
                connection,
                contents,
                uploads,
            }
        }

        async fn run(&self) -> Result<Made, Problem> {
            let bytes = Bytes::from_static(b"the action");
            let action = Digest::of(&bytes);
            let prepared = Prepared {
                action,
                blobs: vec![(action, Source::Bytes(bytes))],
            };
            run(&self.connection, &self.contents, &self.uploads, &prepared, 0).await
        }

        fn answers(
            &self,
            run: impl Fn(&Memory, &ExecuteRequest) -> Result<ExecuteResponse, Status> + Send + Sync + 'static,
        ) {
            self.cluster.memory().run = Some(Arc::new(run));
        }

        /// The result of a command that makes an entry with these blobs.
        fn result(&self, blobs: &[&str]) -> ActionResult {
            let file = |name: &str, text: &str| OutputFile {
                path: format!("{FOLDER}/{name}"),
                digest: Some(self.cluster.put(text.as_bytes()).to_message()),
                ..OutputFile::default()
            };
            let node = |text: &&str| FileNode {
                name: Key::of(text.as_bytes()).to_string(),
                digest: Some(self.cluster.put(text.as_bytes()).to_message()),
                ..FileNode::default()
            };
            let tree = Tree {
                root: Some(Directory {
                    files: blobs.iter().map(node).collect(),
                    ..Directory::default()
                }),
                children: Vec::new(),
            };
            ActionResult {
                output_files: vec![file(KEY, &format!("{}\n", Key::of(b"key"))), file(FACTS, "facts")],
                output_directories: vec![OutputDirectory {
                    path: format!("{FOLDER}/{BLOBS}"),
                    tree_digest: Some(self.cluster.put(&tree.encode_to_vec()).to_message()),
                    ..OutputDirectory::default()
                }],
                ..ActionResult::default()
            }
        }
    }

    fn response(result: ActionResult) -> ExecuteResponse {
        ExecuteResponse {
            result: Some(result),
            ..ExecuteResponse::default()
        }
    }

    #[tokio::test]
    async fn an_entry_comes_back_with_its_blobs() {
        let lab = Lab::start().await;
        let made = response(lab.result(&["object", "messages"]));
        lab.answers(move |_, _| Ok(made.clone()));
        let made = lab.run().await.unwrap();
        assert_eq!((made.key, &made.entry[..]), (Key::of(b"key"), &b"facts"[..]));
        assert_eq!(
            made.blobs,
            ["object", "messages"].map(|text| Bytes::from_static(text.as_bytes()))
        );
    }

    #[tokio::test]
    async fn a_stream_that_ends_early_is_begun_again() {
        let lab = Lab::start().await;
        let made = response(lab.result(&[]));
        lab.answers(move |_, _| Ok(made.clone()));
        lab.cluster.memory().cuts = 2;
        assert!(lab.run().await.is_ok());
        assert_eq!(lab.cluster.count("WaitExecution"), 2);
        lab.cluster.memory().cuts = 99;
        assert_eq!(
            lab.run().await,
            Err(Problem(Failure::Failed, "it told no result".to_owned()))
        );
    }

    #[tokio::test]
    async fn inputs_that_were_lost_are_brought_again() {
        let lab = Lab::start().await;
        lab.run().await.unwrap_err();
        let made = response(lab.result(&[]));
        lab.cluster.memory().blobs.remove(&Digest::of(b"the action"));
        lab.answers(move |memory, request| {
            let action = Digest::from_message(request.action_digest.as_ref().unwrap()).unwrap();
            match memory.blobs.contains_key(&action) {
                true => Ok(made.clone()),
                false => Err(Status::failed_precondition("an input is missing")),
            }
        });
        assert!(lab.run().await.is_ok());
        lab.answers(|_, _| Err(Status::failed_precondition("no worker has this property")));
        assert_eq!(lab.run().await, Err(Problem(Failure::Failed, LOSES.to_owned())));
    }

    #[tokio::test]
    async fn an_earlier_result_whose_contents_are_gone_is_made_again() {
        let lab = Lab::start().await;
        let made = response(lab.result(&["object"]));
        let lost = Digest::of(b"object");
        lab.cluster.memory().blobs.remove(&lost);
        let cluster = lab.cluster.clone();
        let asked = Arc::new(std::sync::Mutex::new(Vec::new()));
        let noted = asked.clone();
        lab.answers(move |_, request| {
            noted.lock().unwrap().push(request.skip_cache_lookup);
            Ok(ExecuteResponse {
                cached_result: !request.skip_cache_lookup,
                ..made.clone()
            })
        });
        assert!(lab.run().await.is_err(), "the test's worker has not made it yet");
        cluster.put(b"object");
        assert!(lab.run().await.is_ok());
        assert_eq!(*asked.lock().unwrap(), [false, true, false]);
    }

    #[tokio::test]
    async fn the_reason_of_a_worker_is_told() {
        let lab = Lab::start().await;
        let why = |text: &str| ActionResult {
            output_files: vec![OutputFile {
                path: format!("{FOLDER}/{WHY}"),
                digest: Some(Digest::of(text.as_bytes()).to_message()),
                contents: text.as_bytes().to_vec(),
                ..OutputFile::default()
            }],
            exit_code: 1,
            ..ActionResult::default()
        };
        let told = why("it failed\x1b[2J with status 1\nmore\n");
        lab.answers(move |_, _| Ok(response(told.clone())));
        let expected = Problem(Failure::NoEntry, "it failed[2J with status 1".to_owned());
        assert_eq!(lab.run().await, Err(expected));
    }

    /// Nothing else would be better with it.
    #[tokio::test]
    async fn a_worker_that_can_make_no_entry_is_a_fault() {
        let lab = Lab::start().await;
        lab.answers(|_, _| Ok(response(ActionResult::default())));
        assert!(matches!(lab.run().await, Err(Problem(Failure::Failed, words)) if words.contains("status 0")));
        let mut told = lab.result(&[]);
        told.output_files.truncate(1);
        told.output_files[0].path = format!("{FOLDER}/{TROUBLE}");
        lab.answers(move |_, _| Ok(response(told.clone())));
        assert!(matches!(lab.run().await, Err(Problem(Failure::Failed, _))));
    }

    #[tokio::test]
    async fn answers_that_are_none_are_faults() {
        let lab = Lab::start().await;
        let good = lab.result(&["object"]);
        let mut changes: Vec<ActionResult> = Vec::new();
        let mut change = |act: &dyn Fn(&mut ActionResult)| {
            let mut result = good.clone();
            act(&mut result);
            changes.push(result);
        };
        change(&|result| result.output_files[0].digest = Some(lab.cluster.put(b"no key").to_message()));
        change(&|result| result.output_files[1].digest = None);
        change(&|result| result.output_directories[0].tree_digest = Some(lab.cluster.put(b"\xff").to_message()));
        change(&|result| {
            if let Some(digest) = &mut result.output_files[1].digest {
                digest.size_bytes = i64::MAX;
            }
        });
        for result in changes {
            lab.answers(move |_, _| Ok(response(result.clone())));
            let Err(Problem(failure, _)) = lab.run().await else {
                panic!("it was taken for an entry");
            };
            assert!(matches!(failure, Failure::Failed | Failure::Declined));
        }
    }
}
