//! `wafcc`: the command line in front of a compiler.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

use wafengine::folder::ENGINE;
use wafengine::wrapper::{is_own_name, restore_sigpipe, Wrapped};

const HELP: &str = "\
wafcc runs a compiler, or any command, in the engine of waflib-extras, so that builds by make, CMake or ninja share
the processors with each other and with Waf's builds instead of doubling the load. Without an engine it just runs it.

Usage: wafcc COMMAND [ARGUMENT...]
       wafcc --help | --version
       a link to wafcc that is called like a compiler runs the next one of that name in PATH

Environment:
  WAFCC_DISABLE     run the command here, without the engine
  WAFD_RUNTIME_DIR  where the engine is (see wafd --help)

Examples:
  make CC='wafcc gcc' -j8
  cmake -DCMAKE_C_COMPILER_LAUNCHER=wafcc -DCMAKE_CXX_COMPILER_LAUNCHER=wafcc ..
  ln -s \"$(command -v wafcc)\" ~/bin/gcc    # with ~/bin before /usr/bin in PATH
";

fn main() {
    restore_sigpipe();
    let mut args = std::env::args_os();
    let argv0 = args.next().unwrap_or_else(|| OsString::from("wafcc"));
    let status = if is_own_name(&argv0) {
        wrap_named(args.collect())
    } else {
        let name = Path::new(&argv0).file_name().map(OsString::from);
        wrap(name.unwrap_or(argv0), args.collect())
    };
    std::process::exit(status);
}

fn wrap_named(mut args: Vec<OsString>) -> i32 {
    match args.first().and_then(|a| a.to_str()) {
        None | Some("--help" | "-h") => say(HELP),
        Some("--version" | "-V") => say(&format!("wafcc {ENGINE}\n")),
        Some(option) if option.starts_with('-') => {
            eprintln!("wafcc: there is no option {option}; see wafcc --help");
            2
        }
        Some(_) => {
            let name = args.remove(0);
            wrap(name, args)
        }
    }
}

fn say(text: &str) -> i32 {
    let mut out = std::io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("wafcc: write to standard output: {error}");
            1
        }
    }
}

fn wrap(name: OsString, args: Vec<OsString>) -> i32 {
    match Wrapped::find(&name, args) {
        Ok(wrapped) => wrapped.run(),
        Err(error) => {
            eprintln!("wafcc: {error}");
            127
        }
    }
}
