//! Runs commands observed as by the engine, and prints their records, for `utils/fuzzobserve.py`.
//!
//! Each line of standard input is a command, and each line of standard output its result, both as JSON:
//!
//! ```text
//! {"argv": ["cc", "-c", "a.c"], "folder": "/tmp/x", "environment": ["PATH=/usr/bin"], "tracer": ["strace", "-f"], "seconds": 60}
//! {"status": 0, "accesses": [{"process": 7, "error": 0, "kind": "open", "path": "a.c", "reads": true, ...}, ...], "blind": [], "arena": "/proc/1/fd/3"}
//! ```
//!
//! The first line of output names the library and the paths that need not be recorded. With a tracer, the command runs below
//! it, and only the command is observed. With `"how": "traced"`, the second witness observes the command, so it can have no
//! other tracer. With `"how": "plain"`, the command is not observed. Each byte of a path is one character, because paths need
//! not be UTF-8.

#[path = "../tests/support/exceptions.rs"]
mod exceptions;

use std::collections::HashMap;
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, BufRead, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{kill_process_group, Pid, Signal};
use serde_json::{json, Value};
use wafengine::facts::instructions;
use wafengine::observe::access::{Access, What};
use wafengine::observe::known_programs::OWN_CALLS;
use wafengine::observe::trace::program::is_static;
use wafengine::observe::trace::{Arena, TraceRegion};
use wafengine::park::LIBRARY;

type Outcome<T> = Result<T, Box<dyn Error>>;

const PAUSE: Duration = Duration::from_millis(1);
/// Commands run one at a time. But a region is not used again if a killed process was about to write into it.
const REGIONS: usize = 8;

fn main() -> Outcome<()> {
    let Some(folder) = std::env::args_os().nth(1).map(PathBuf::from) else {
        return Err("observe: name a folder for the library that observes".into());
    };
    let library = folder.canonicalize()?.join("libwafpark.so");
    fs::write(&library, LIBRARY)?;
    let mut arena = open()?;
    let mut instructions = Instructions {
        library: library.clone(),
        known: HashMap::new(),
    };
    let mut stdout = io::stdout().lock();
    let greeting = json!({"library": library.to_str(), "exceptions": exceptions::EXCEPTIONS});
    writeln!(stdout, "{greeting}")?;
    stdout.flush()?;
    for line in io::stdin().lock().lines() {
        let request = serde_json::from_str(&line?)?;
        let trace_region = match arena.reserve() {
            Some(trace_region) => trace_region,
            None => {
                arena = open()?;
                arena.reserve().ok_or("observe: an arena without slots")?
            }
        };
        let mut result = observe(&request, &library, trace_region, &mut instructions)?;
        result["arena"] = arena.path().into();
        writeln!(stdout, "{result}")?;
        stdout.flush()?;
    }
    Ok(())
}

/// An arena with the second witness, if it is built: `wafd` is in the folder above the examples.
fn open() -> Outcome<Arena> {
    let own = std::env::current_exe()?;
    let witness = own.ancestors().nth(2).map(|folder| folder.join("wafd"));
    let file = witness.and_then(|path| fs::File::open(path).ok());
    Ok(Arena::new(REGIONS)?.with_witness(file.map(OwnedFd::from)))
}

fn observe(
    request: &Value,
    library: &Path,
    mut trace_region: TraceRegion,
    instructions: &mut Instructions,
) -> Outcome<Value> {
    let (tracer, argv) = (words(&request["tracer"]), words(&request["argv"]));
    let folder = Path::new(request["folder"].as_str().ok_or("observe: no folder")?);
    // A name without a slash is searched along PATH, so its file is not known here.
    let started = argv.first().filter(|name| name.as_bytes().contains(&b'/'));
    let started = started.map(|name| folder.join(name));
    let is_traced = request["how"] == "traced" || started.as_deref().is_some_and(is_static);
    let traced = trace_region.witness().filter(|_| tracer.is_empty() && is_traced);
    trace_region.expect(started);
    let mut line = tracer.clone();
    let environment = words(&request["environment"]);
    let variables = match traced {
        Some((witness, variable)) => {
            let program = argv.first().cloned().unwrap_or_default();
            line.extend([witness.into(), "witness".into(), program]);
            vec![variable]
        }
        None if request["how"] == "plain" => Vec::new(),
        None => trace_region.variables(library.as_os_str().as_bytes(), None).to_vec(),
    };
    let ours: Vec<_> = variables.into_iter().map(OsString::from_vec).collect();
    if !tracer.is_empty() {
        line.extend(ours.iter().flat_map(|variable| ["-E".into(), variable.clone()]));
    }
    line.extend(argv);
    let (program, arguments) = line.split_first().ok_or("observe: no command")?;
    let mut command = Command::new(program);
    command.args(arguments).env_clear().process_group(0);
    command.current_dir(folder);
    let of_command = if tracer.is_empty() { ours.as_slice() } else { &[] };
    for variable in environment.iter().chain(of_command) {
        let (name, value) = split(variable).ok_or("observe: a variable without a value")?;
        command.env(name, value);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let seconds = request["seconds"].as_u64().unwrap_or(60);
    let status = wait(command.spawn()?, Duration::from_secs(seconds))?;
    let (mut accesses, mut blind) = (Vec::new(), Vec::new());
    let found = trace_region.finish();
    if request["how"] != "traced" && instructions.are_in(&found) {
        blind.push(OWN_CALLS);
    }
    for access in found {
        match access.what {
            What::Blind { why } => blind.push(why),
            _ => accesses.push(describe(access)),
        }
    }
    let status = status.map(|status| status.code().unwrap_or(-status.signal().unwrap_or_default()));
    Ok(json!({"status": status, "accesses": accesses, "blind": blind}))
}

/// Finds files that make system calls by their own instructions. Like the engine, we read each file that is loaded into a
/// program.
struct Instructions {
    /// Our own library, which makes such calls.
    library: PathBuf,
    /// By device, inode, and when it was changed.
    known: HashMap<(u64, u64, i64, i64), bool>,
}

impl Instructions {
    fn are_in(&mut self, accesses: &[Access]) -> bool {
        let mut folders: HashMap<u32, PathBuf> = HashMap::new();
        accesses.iter().any(|access| match &access.what {
            What::Begin {
                program,
                folder,
                is_traced,
                ..
            } => {
                folders.insert(access.process, path_of(folder));
                !is_traced && self.is_in(&path_of(program))
            }
            What::Load { path } => {
                let folder = folders.get(&access.process).cloned().unwrap_or_default();
                self.is_in(&folder.join(path_of(path)))
            }
            _ => false,
        })
    }

    fn is_in(&mut self, path: &Path) -> bool {
        let Some(status) = fs::metadata(path).ok().filter(|_| path != self.library) else {
            return false;
        };
        let key = (status.dev(), status.ino(), status.ctime(), status.ctime_nsec());
        let read = || fs::read(path).is_ok_and(|bytes| instructions::find(&bytes).calls);
        *self.known.entry(key).or_insert_with(read)
    }
}

fn path_of(bytes: &[u8]) -> PathBuf {
    OsString::from_vec(bytes.to_vec()).into()
}

fn words(list: &Value) -> Vec<OsString> {
    let words = list.as_array().into_iter().flatten().filter_map(Value::as_str);
    words.map(OsString::from).collect()
}

fn split(variable: &OsStr) -> Option<(&OsStr, &OsStr)> {
    let bytes = variable.as_bytes();
    let at = bytes.iter().position(|b| *b == b'=')?;
    Some((OsStr::from_bytes(&bytes[..at]), OsStr::from_bytes(&bytes[at + 1..])))
}

/// None if the command took too long. Then it is killed, with its process group.
fn wait(mut child: Child, patience: Duration) -> Outcome<Option<ExitStatus>> {
    let end = Instant::now() + patience;
    while Instant::now() < end {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        thread::sleep(PAUSE);
    }
    if let Some(group) = Pid::from_raw(child.id() as i32) {
        kill_process_group(group, Signal::KILL)?;
    }
    child.wait()?;
    Ok(None)
}

/// Each byte as one character.
fn text(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

fn describe(access: Access) -> Value {
    let mut described = match access.what {
        What::Begin {
            program,
            folder,
            parent,
            is_traced,
        } => {
            json!({"kind": "begin", "path": text(&program), "folder": text(&folder), "parent": parent, "traced": is_traced})
        }
        What::Execute { path } => json!({"kind": "execute", "path": text(&path)}),
        What::Load { path } => json!({"kind": "load", "path": text(&path)}),
        What::Enter { path } => json!({"kind": "enter", "path": text(&path)}),
        What::Open { path, mode } => json!({
            "kind": "open", "path": text(&path), "reads": mode.reads, "writes": mode.writes, "creates": mode.creates,
            "exclusive": mode.exclusive, "truncates": mode.truncates,
        }),
        What::Find { path } => json!({"kind": "find", "path": text(&path)}),
        What::Look { path, follows } => json!({"kind": "look", "path": text(&path), "follows": follows}),
        What::Link { path } => json!({"kind": "link", "path": text(&path)}),
        What::Resolve { path } => json!({"kind": "resolve", "path": text(&path)}),
        What::List { path } => json!({"kind": "list", "path": text(&path)}),
        What::Listed { folder, names } => json!({"kind": "listed", "folder": folder, "names": names}),
        What::Crate { folder, name } => json!({"kind": "crate", "folder": folder, "name": text(&name)}),
        What::Guarded => json!({"kind": "guarded"}),
        What::Ask { name } => json!({"kind": "ask", "name": text(&name)}),
        What::Locate => json!({"kind": "locate"}),
        What::Anchor => json!({"kind": "anchor"}),
        What::Time => json!({"kind": "time"}),
        What::Date => json!({"kind": "date"}),
        What::Random => json!({"kind": "random"}),
        What::Measure => json!({"kind": "measure"}),
        What::Number => json!({"kind": "number"}),
        What::Rename { from, to } => json!({"kind": "rename", "path": text(&from), "to": text(&to)}),
        What::Remove { path } => json!({"kind": "remove", "path": text(&path)}),
        What::Make { path, is_folder } => json!({"kind": "make", "path": text(&path), "folder": is_folder}),
        What::Blind { why } => json!({"kind": "blind", "why": why}),
    };
    described["process"] = access.process.into();
    described["error"] = access.error.into();
    described
}
