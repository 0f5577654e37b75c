//! Executes an action of the cluster: brings its inputs, runs its command in a slot, and uploads what it has made.
//!
//! There are two kinds. Most clients want what the command makes: their inputs lie in a folder of their own. An engine of
//! ours wants the cache's *entry* of the command (`WAFD_ENTRY`): its inputs lie where they lie on its own machine, and the
//! command is run by `wafcc`, with an engine that stays in the slot.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bazel_remote_apis::google::protobuf::{Any, Timestamp};
use bazel_remote_apis::google::rpc::Status;
use prost::Message;
use tonic::Code;
use wafengine::cluster::{ENTRY, FOLDER, PLACES, VERSION};

use super::chamber;
use super::keeper::INSIDE;
use super::order::{Ended, Order};
use super::outputs::{self, Taken, Untaken};
use super::slot::{relative, Slot};
use super::store::Store;
use super::tree::{self, Node, Tree, Trees, Unread};
use crate::connection::Fault;
use crate::contents::Contents;
use crate::digests::Digest;
use crate::executing::action::{KEY, WHY};
use crate::reapi::{Action, ActionResult, Command, ExecutedActionMetadata};

/// What may be told to the engine of a slot. Others could make it speak to other stores.
const TOLD: [&str; 7] = [
    "WAFCC_BASEDIR",
    "WAFCC_COMPARETEXTS",
    "WAFCC_EXTRAFILES",
    "WAFCC_FACTS",
    "WAFCC_NAMESPACE",
    "WAFCC_PROCESSOR",
    "WAFCC_SHARECHECKOUTS",
];
/// The largest description of a command.
const LARGEST_COMMAND: u64 = 64 << 20;
/// The largest file that a command may write.
const LARGEST_FILE: u64 = 4 << 30;
/// How long a slot's engine waits for the next command.
const IDLE: &str = "3600";
const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

pub struct Executor {
    pub contents: Contents,
    pub trees: Trees,
    pub store: Arc<Store>,
    /// The most time for a command.
    pub time: Duration,
    pub name: String,
}

/// What became of an action.
pub struct Done {
    pub status: Status,
    pub result: Option<ActionResult>,
}

/// An action failed before its command was run, or after it.
#[derive(Debug)]
pub enum Failed {
    /// The cluster lacks these.
    Missing(Vec<Digest>),
    /// The client is at fault.
    Invalid(String),
    Late,
    Fault(Fault),
    /// The fault is ours.
    Own(String),
}

impl From<Fault> for Failed {
    fn from(fault: Fault) -> Failed {
        Failed::Fault(fault)
    }
}

impl From<Unread> for Failed {
    fn from(unread: Unread) -> Failed {
        match unread {
            Unread::Missing(digests) => Failed::Missing(digests),
            Unread::Invalid(why) => Failed::Invalid(why),
            Unread::Fault(fault) => Failed::Fault(fault),
        }
    }
}

impl From<Untaken> for Failed {
    fn from(untaken: Untaken) -> Failed {
        match untaken {
            Untaken::Invalid(why) => Failed::Invalid(why),
            Untaken::Fault(fault) => Failed::Fault(fault),
        }
    }
}

/// How a command is run.
pub struct Plan {
    /// Where the slot sees the input root.
    base: PathBuf,
    pub places: Vec<PathBuf>,
    /// For the slot's engine.
    pub variables: Vec<(String, String)>,
    pub order: Order,
    wants_entry: bool,
}

impl Executor {
    /// `payload` is what a lease has: an action, or its digest.
    pub async fn execute(&self, slot: &mut Slot, payload: Option<Any>) -> Done {
        let begun = SystemTime::now();
        let done = self.try_to_execute(slot, payload).await;
        match done {
            Ok(mut result) => {
                let metadata = result.execution_metadata.get_or_insert_default();
                metadata.worker = self.name.clone();
                metadata.worker_start_timestamp = Some(timestamp(begun));
                metadata.worker_completed_timestamp = Some(timestamp(SystemTime::now()));
                Done {
                    status: Status::default(),
                    result: Some(result),
                }
            }
            Err(failed) => {
                let status = failed.status();
                log::info!("an action failed: {}", status.message);
                Done { status, result: None }
            }
        }
    }

    async fn try_to_execute(&self, slot: &mut Slot, payload: Option<Any>) -> Result<ActionResult, Failed> {
        let action = self.action(payload).await?;
        let command: Command = self.message(action.command_digest.as_ref()).await?;
        let root = digest_of(action.input_root_digest.as_ref())?;
        let wants_entry = variable(&command, ENTRY).is_some();
        if let Some(version) = variable(&command, ENTRY).filter(|version| *version != VERSION) {
            return self
                .without_entry(&format!("the worker makes entries of version {VERSION}, not {version}"))
                .await;
        }
        let time = match &action.timeout {
            Some(asked) if asked.seconds >= 0 => {
                let asked = Duration::from_secs(asked.seconds as u64) + Duration::from_nanos(asked.nanos.max(0) as u64);
                if asked.is_zero() {
                    self.time
                } else {
                    asked.min(self.time)
                }
            }
            _ => self.time,
        };
        let plan = match wants_entry {
            true if !slot.is_isolated() => return self.without_entry("the worker runs without namespaces").await,
            true => plan_for_entry(&command, time),
            false => plan_plainly(&command, time, slot),
        };
        let mut plan = plan?;
        let fetching = SystemTime::now();
        let tree = self.trees.read(&root).await?;
        let tree = placed(tree, &plan, &command)?;
        let files = tree::files(&tree);
        let pins = self
            .store
            .bring(&self.contents, &files)
            .await?
            .map_err(Failed::Missing)?;
        // Links would let a command that runs as our own user change the store.
        let links = !wants_entry && slot.has_other_user();
        let prepared = slot.prepare(&plan.places, &plan.variables, tree, pins, links).await;
        prepared.map_err(Failed::Own)?;
        let running = SystemTime::now();
        plan.order.is_last = !wants_entry;
        let ended = slot.run(&plan.order).await.map_err(Failed::Own)?;
        let ran = SystemTime::now();
        if let Some(why) = &ended.trouble {
            return Err(Failed::Own(why.clone()));
        }
        if ended.is_late {
            return Err(Failed::Late);
        }
        let mut result = self.upload(slot, &plan, &command, &ended).await?;
        result.execution_metadata = Some(ExecutedActionMetadata {
            input_fetch_start_timestamp: Some(timestamp(fetching)),
            input_fetch_completed_timestamp: Some(timestamp(running)),
            execution_start_timestamp: Some(timestamp(running)),
            execution_completed_timestamp: Some(timestamp(ran)),
            output_upload_start_timestamp: Some(timestamp(ran)),
            output_upload_completed_timestamp: Some(timestamp(SystemTime::now())),
            ..ExecutedActionMetadata::default()
        });
        Ok(result)
    }

    async fn action(&self, payload: Option<Any>) -> Result<Action, Failed> {
        let payload = payload.ok_or_else(|| Failed::Invalid("the lease has no action".to_owned()))?;
        let invalid = |_| Failed::Invalid("the lease has something else than an action".to_owned());
        let kind = payload.type_url.rsplit('/').next().unwrap_or_default();
        match kind {
            "build.bazel.remote.execution.v2.Action" => Action::decode(&payload.value[..]).map_err(invalid),
            "build.bazel.remote.execution.v2.Digest" => {
                let digest = crate::reapi::Digest::decode(&payload.value[..]).map_err(invalid)?;
                self.message(Some(&digest)).await
            }
            kind => Err(Failed::Invalid(format!("the lease has a {kind}, and no action"))),
        }
    }

    async fn message<T: Message + Default>(&self, digest: Option<&crate::reapi::Digest>) -> Result<T, Failed> {
        let digest = digest_of(digest)?;
        let bytes = self.contents.read(&digest, LARGEST_COMMAND).await?;
        let bytes = bytes.ok_or_else(|| Failed::Missing(vec![digest]))?;
        T::decode(bytes).map_err(|_| Failed::Invalid("a message of the action is none".to_owned()))
    }

    /// The result of a command for which there is no entry. It was not run.
    async fn without_entry(&self, why: &str) -> Result<ActionResult, Failed> {
        let mut taken = Taken::default();
        taken.add_text(&format!("{FOLDER}/{WHY}"), &format!("{why}\n"));
        taken.upload(&self.contents).await?;
        Ok(taken.result)
    }

    async fn upload(&self, slot: &Slot, plan: &Plan, command: &Command, ended: &Ended) -> Result<ActionResult, Failed> {
        let root = slot.root().join(relative(&plan.base));
        let (aside, stdout, stderr) = (slot.out(), slot.stdout(), slot.stderr());
        let (command, wants_entry) = (command.clone(), plan.wants_entry);
        let take = move || -> Result<Taken, Untaken> {
            let mut taken = outputs::take(&root, &command, &aside)?;
            outputs::take_texts(&mut taken, &stdout, &stderr)?;
            let has = |name: &str| {
                taken
                    .result
                    .output_files
                    .iter()
                    .any(|file| file.path == format!("{FOLDER}/{name}"))
            };
            if wants_entry && !has(KEY) && !has(WHY) {
                taken.add_text(
                    &format!("{FOLDER}/{WHY}"),
                    "the worker's engine did not follow the command\n",
                );
            }
            Ok(taken)
        };
        let taken = tokio::task::spawn_blocking(take).await;
        let mut taken = taken.map_err(|error| Failed::Own(format!("read outputs: {error}")))??;
        taken.upload(&self.contents).await?;
        taken.result.exit_code = ended.status;
        Ok(taken.result)
    }
}

pub fn variable<'a>(command: &'a Command, name: &str) -> Option<&'a str> {
    let mut all = command.environment_variables.iter();
    all.find(|variable| variable.name == name)
        .map(|variable| variable.value.as_str())
}

fn variables(command: &Command) -> Vec<(String, String)> {
    let all = command.environment_variables.iter();
    all.map(|variable| (variable.name.clone(), variable.value.clone()))
        .collect()
}

fn order(argv: Vec<String>, variables: Vec<(String, String)>, folder: PathBuf, time: Duration) -> Order {
    Order {
        argv,
        variables,
        folder,
        milliseconds: time.as_millis() as u64,
        largest: LARGEST_FILE,
        is_last: true,
    }
}

/// A command of which the cache's entry is wanted.
pub fn plan_for_entry(command: &Command, time: Duration) -> Result<Plan, Failed> {
    let places = variable(command, PLACES).unwrap_or_default().split(':');
    let places: Vec<PathBuf> = places.filter(|place| !place.is_empty()).map(PathBuf::from).collect();
    let places = tree::topmost(places);
    if let Some(why) = chamber::refuse(&places) {
        return Err(Failed::Invalid(why));
    }
    // It is called as its client calls it, since this name is a part of the entry's key.
    let is_none = |program: &String| program.is_empty() || program.starts_with('-');
    if command.arguments.first().is_none_or(is_none) {
        return Err(Failed::Invalid("it has no program".to_owned()));
    }
    let folder = Path::new("/").join(outputs::plain(&command.working_directory)?);
    let home = Path::new(INSIDE).join("home");
    let told = |path: PathBuf| path.to_string_lossy().into_owned();
    let is_ours = |name: &str| name.starts_with("WAFCC_") || name.starts_with("WAFD_") || name.starts_with("WAFPARK_");
    let (own, mut plain): (Vec<_>, Vec<_>) = variables(command).into_iter().partition(|(name, _)| is_ours(name));
    let mut own: Vec<_> = own
        .into_iter()
        .filter(|(name, _)| TOLD.contains(&name.as_str()))
        .collect();
    own.sort();
    let ours = [
        ("WAFCC_DIR", told(home.join("store"))),
        ("WAFCC_CONFIGPATH", told(home.join("wafcc.conf"))),
        ("WAFCC_EXPORT", told(folder.join(FOLDER))),
        ("WAFD_RUNTIME_DIR", told(home.join("engine"))),
        ("WAFD_IDLE", IDLE.to_owned()),
    ];
    plain.extend(own.iter().cloned());
    plain.extend(ours.map(|(name, value)| (name.to_owned(), value)));
    let mut argv = vec![told(Path::new(INSIDE).join("bin/wafcc"))];
    argv.extend(command.arguments.iter().cloned());
    Ok(Plan {
        base: PathBuf::from("/"),
        places,
        variables: own,
        order: order(argv, plain, folder, time),
        wants_entry: true,
    })
}

fn plan_plainly(command: &Command, time: Duration, slot: &Slot) -> Result<Plan, Failed> {
    if command.arguments.is_empty() {
        return Err(Failed::Invalid("it has no command line".to_owned()));
    }
    let base = Path::new(INSIDE).join("build");
    let seen = match slot.is_isolated() {
        true => base.clone(),
        false => slot.root().join(relative(&base)),
    };
    let folder = seen.join(outputs::plain(&command.working_directory)?);
    let mut variables = variables(command);
    if variable(command, "PATH").is_none() {
        variables.push(("PATH".to_owned(), USUAL_PATH.to_owned()));
    }
    Ok(Plan {
        places: vec![base.clone()],
        base,
        variables: Vec::new(),
        order: order(command.arguments.clone(), variables, folder, time),
        wants_entry: false,
    })
}

/// The tree as the slot has it: below its base, with its places, the command's folder, and those of its outputs.
#[allow(deprecated)] // older clients use the older names of outputs
fn placed(tree: Tree, plan: &Plan, command: &Command) -> Result<Tree, Failed> {
    let base = relative(&plan.base);
    let mut placed: Tree = tree
        .into_iter()
        .map(|(path, node)| (join(&base, &path), node))
        .collect();
    let places: Vec<String> = plan.places.iter().map(|place| relative(place)).collect();
    let is_placed = |path: &str| places.iter().any(|place| Path::new(path).starts_with(place));
    let outside = placed
        .iter()
        .find(|(path, node)| **node != Node::Folder && !is_placed(path));
    if let Some((path, _)) = outside {
        return Err(Failed::Invalid(format!("/{path} is in no folder that {PLACES} names")));
    }
    let mut folders = places.clone();
    let working = join(&base, &outputs::plain(&command.working_directory)?.to_string_lossy());
    folders.push(working.clone());
    if !plan.wants_entry {
        let outputs = [
            &command.output_paths,
            &command.output_files,
            &command.output_directories,
        ];
        for name in outputs.into_iter().flatten() {
            let path = outputs::plain(name)?;
            if let Some(parent) = path.parent() {
                folders.push(join(&working, &parent.to_string_lossy()));
            }
        }
        // Older clients expect that these are there.
        for name in command
            .output_directories
            .iter()
            .filter(|_| command.output_paths.is_empty())
        {
            folders.push(join(&working, &outputs::plain(name)?.to_string_lossy()));
        }
    }
    for folder in folders {
        let added = tree::add_folder(&mut placed, &folder);
        added.map_err(|path| Failed::Invalid(format!("{path} is a file, and a folder")))?;
    }
    Ok(placed)
}

fn join(folder: &str, path: &str) -> String {
    match (folder, path) {
        ("", path) => path.to_owned(),
        (folder, "") => folder.to_owned(),
        _ => format!("{folder}/{path}"),
    }
}

fn digest_of(message: Option<&crate::reapi::Digest>) -> Result<Digest, Failed> {
    let digest = message.and_then(Digest::from_message);
    digest.ok_or_else(|| Failed::Invalid("a digest of the action is none".to_owned()))
}

fn timestamp(time: SystemTime) -> Timestamp {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp {
        seconds: since.as_secs() as i64,
        nanos: since.subsec_nanos() as i32,
    }
}

/// `google.rpc.PreconditionFailure`, by which clients learn what to upload again.
#[derive(Clone, PartialEq, prost::Message)]
struct PreconditionFailure {
    #[prost(message, repeated, tag = "1")]
    violations: Vec<Violation>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Violation {
    #[prost(string, tag = "1")]
    kind: String,
    #[prost(string, tag = "2")]
    subject: String,
    #[prost(string, tag = "3")]
    description: String,
}

impl Failed {
    pub fn status(self) -> Status {
        let (code, message) = match self {
            Failed::Missing(digests) => return missing(&digests),
            Failed::Invalid(why) => (Code::InvalidArgument, why),
            Failed::Late => (Code::DeadlineExceeded, "the command took too long".to_owned()),
            // Another worker may have more luck.
            Failed::Fault(Fault::Declined(why)) => (Code::ResourceExhausted, why),
            Failed::Fault(Fault::Silent(why) | Fault::Failed(why)) => (Code::Unavailable, why),
            Failed::Own(why) => (Code::Internal, why),
        };
        Status {
            code: code as i32,
            message,
            details: Vec::new(),
        }
    }
}

fn missing(digests: &[Digest]) -> Status {
    let violation = |digest: &Digest| Violation {
        kind: "MISSING".to_owned(),
        subject: format!("blobs/{}", digest.resource()),
        description: String::new(),
    };
    let failure = PreconditionFailure {
        violations: digests.iter().take(1000).map(violation).collect(),
    };
    Status {
        code: Code::FailedPrecondition as i32,
        message: "the cluster lacks a part of the inputs".to_owned(),
        details: vec![Any {
            type_url: "type.googleapis.com/google.rpc.PreconditionFailure".to_owned(),
            value: failure.encode_to_vec(),
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reapi::command::EnvironmentVariable;
    use crate::worker::store::Wanted;

    fn command(places: &str) -> Command {
        let variables = [
            (PLACES, places),
            (ENTRY, VERSION),
            ("PATH", "/bin"),
            ("WAFCC_REMOTE", "tcp://elsewhere"),
            ("WAFCC_COMPARETEXTS", "no"),
        ];
        Command {
            arguments: vec!["gcc".to_owned(), "-c".to_owned()],
            environment_variables: variables
                .map(|(name, value)| EnvironmentVariable {
                    name: name.to_owned(),
                    value: value.to_owned(),
                })
                .to_vec(),
            working_directory: "home/u/p/o".to_owned(),
            ..Command::default()
        }
    }

    fn plan(places: &str) -> Result<Plan, Failed> {
        plan_for_entry(&command(places), Duration::from_secs(1))
    }

    #[test]
    fn a_slot_takes_only_known_settings_of_others() {
        let plan = plan("/home/u/p").unwrap();
        let told = |name: &str| plan.order.variables.iter().filter(|(own, _)| own == name).count();
        assert_eq!(
            (
                told("PATH"),
                told("WAFCC_COMPARETEXTS"),
                told("WAFCC_REMOTE"),
                told(ENTRY)
            ),
            (1, 1, 0, 0)
        );
        assert_eq!(plan.variables.len(), 1);
        assert_eq!(plan.order.folder, Path::new("/home/u/p/o"));
    }

    #[test]
    fn a_place_in_another_one_is_a_part_of_it() {
        let several = plan("/home/u/p:/home/u/p/q:/home/u/pq::/home/u/p").unwrap();
        assert_eq!(several.places, [Path::new("/home/u/p"), Path::new("/home/u/pq")]);
        assert!(matches!(plan("/home/u/p:/etc/../x"), Err(Failed::Invalid(_))));
    }

    #[test]
    fn files_outside_of_the_places_are_refused() {
        let plan = plan("/home/u/p").unwrap();
        let file = Node::File(Wanted {
            digest: Digest::of(b""),
            is_program: false,
        });
        let with = |path: &str| placed([(path.to_owned(), file.clone())].into(), &plan, &command(""));
        let tree = with("home/u/p/x").unwrap();
        assert_eq!((&tree["home/u/p"], &tree["home/u/p/o"]), (&Node::Folder, &Node::Folder));
        for bad in ["etc/passwd", "home/u/px", "home/u/p", "home/u/p/o"] {
            assert!(matches!(with(bad), Err(Failed::Invalid(_))), "{bad}");
        }
    }

    #[test]
    fn missing_contents_are_told_as_the_api_wants_it() {
        let status = Failed::Missing(vec![Digest::of(b"abc")]).status();
        assert_eq!(status.code, Code::FailedPrecondition as i32);
        let failure = PreconditionFailure::decode(&status.details[0].value[..]).unwrap();
        assert_eq!(failure.violations[0].kind, "MISSING");
        assert_eq!(
            failure.violations[0].subject,
            "blobs/ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad/3"
        );
    }
}
