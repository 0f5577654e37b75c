//! Writes the files that are generated from the definitions of our command lines and settings: man pages, completions, and
//! the table of settings in `docs/wafcc.md`.
//!
//! ```text
//! cargo run --example manual               # writes what has changed
//! cargo run --example manual -- --check    # fails if something would be written
//! ```
//!
//! The completions of `wafcc` have parts that are written by hand, because `clap_complete` does not support a program that
//! runs another one with all arguments that follow.

mod page;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use clap::{Command, CommandFactory, ValueHint};
use clap_complete::{generate, Shell};
use wafengine::settings::{table, Key};
use wafengine::wafcc::act::PLACES;
use wafengine::wafcc::options;
use wafengine::wafd::Invocation;

const MADE: &str = "# Written by cargo run --example manual from what --help says: change that instead.\n";
const SHELLS: [(Shell, &str, &str); 3] = [
    (Shell::Bash, "", include_str!("wafcc.bash")),
    (Shell::Zsh, "_", include_str!("wafcc.zsh")),
    (Shell::Fish, "", include_str!("wafcc.fish")),
];

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let is_check = std::env::args().any(|word| word == "--check");
    let mut stale = Vec::new();
    for (path, text) in files(&root) {
        let path = root.join(path);
        if fs::read_to_string(&path).is_ok_and(|there| there == text) {
            continue;
        }
        stale.push(path.display().to_string());
        if !is_check {
            if let Err(error) = fs::write(&path, text) {
                eprintln!("manual: write {}: {error}", path.display());
                return ExitCode::FAILURE;
            }
        }
    }
    if is_check && !stale.is_empty() {
        let stale = stale.join(", ");
        eprintln!("manual: not as it is defined: {stale}: run cargo run --example manual");
        return ExitCode::FAILURE;
    }
    println!("{} files have changed {}", stale.len(), stale.join(" "));
    ExitCode::SUCCESS
}

/// The paths and contents of all files.
fn files(root: &Path) -> Vec<(String, String)> {
    let (wafd, wafcc) = (Invocation::command(), options::command());
    let wafd_page = page::write(&wafd, "run the commands of builds", "wafcc(1), waf-extras(7)");
    let summary = "compile with a cache that observes compilers";
    let mut files = vec![
        ("docs/man/wafd.1".to_owned(), wafd_page),
        (
            "docs/man/wafcc.1".to_owned(),
            page::write(&wafcc, summary, "wafd(1), waf-extras(7)"),
        ),
        ("docs/wafcc.md".to_owned(), document(root)),
    ];
    for (shell, prefix, head) in SHELLS {
        let end = if shell == Shell::Fish { ".fish" } else { "" };
        let path = |name: &str| format!("engine/completions/{shell}/{prefix}{name}{end}");
        files.push((path("wafd"), complete_wafd(shell, wafd.clone())));
        files.push((path("wafcc"), complete_wafcc(shell, wafcc.clone(), head)));
    }
    files
}

/// The page with the table of settings as it is now.
fn document(root: &Path) -> String {
    let text = fs::read_to_string(root.join("docs/wafcc.md")).unwrap_or_default();
    let begin = text.find("| setting | variable |").unwrap_or(text.len());
    let end = text[begin..]
        .find("\n\n")
        .map_or(text.len(), |length| begin + length + 1);
    [&text[..begin], &table::document(), &text[end..]].concat()
}

fn script(shell: Shell, command: Command) -> String {
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    generate(shell, &mut offer_no_files(command), name, &mut script);
    String::from_utf8(script).expect("scripts are text")
}

/// Values that are no files are not completed with file names.
fn offer_no_files(command: Command) -> Command {
    let command = command.mut_args(|arg| match arg.get_value_hint() {
        ValueHint::Unknown if arg.get_action().takes_values() => arg.value_hint(ValueHint::Other),
        _ => arg,
    });
    command.mut_subcommands(offer_no_files)
}

fn complete_wafd(shell: Shell, command: Command) -> String {
    let shells = |arg: clap::Arg| arg.value_parser(["bash", "zsh", "fish"]);
    let command = command.mut_subcommand("completion", |command| command.mut_arg("script", shells));
    let mut script = script(shell, command);
    if shell == Shell::Fish {
        script += "complete -c wafd -n '__fish_wafd_using_subcommand completion' -f -a 'bash zsh fish'\n";
    }
    mark(&script)
}

/// The function `_wafcc_options` by `clap_complete`, and `head`, which is written by hand and decides when to call it.
fn complete_wafcc(shell: Shell, command: Command, head: &str) -> String {
    let names = || Key::all().map(Key::name);
    let get: Vec<_> = names().chain(PLACES).collect();
    // clap needs texts that live as long as the program.
    let set: Vec<&str> = names().map(|name| &*format!("{name}=").leak()).collect();
    let command = command
        .mut_arg("get-config", |arg| arg.value_parser(get))
        .mut_arg("set-config", |arg| arg.value_parser(set));
    let script = script(shell, command);
    let options = match shell {
        Shell::Fish => {
            let only_options =
                "complete -c wafcc -n '__fish_is_nth_token 1; or string match -q -- \"-*\" (commandline -opc)[2]'";
            script.replace("complete -c wafcc", only_options)
        }
        _ => {
            let end = script.rfind("\nif [").unwrap_or(script.len());
            script[..=end].replace("_wafcc", "_wafcc_options")
        }
    };
    mark(&(options + head))
}

/// Adds a line that names the origin of a script. In zsh, the line `#compdef` must come first.
fn mark(script: &str) -> String {
    match script.split_once('\n') {
        Some((first, rest)) if first.starts_with("#compdef") => format!("{first}\n{MADE}{rest}"),
        _ => format!("{MADE}{script}"),
    }
}
