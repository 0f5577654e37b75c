//! The settings of `wafcc`: where they are set, and how it shows them.

use std::fs;

use crate::support::sandbox::{run, ProgramOutput, Sandbox};
use crate::support::wrapper;

fn run_wafcc(sandbox: &Sandbox, args: &[&str], variables: &[(&str, &str)]) -> ProgramOutput {
    let mut command = wrapper::wafcc(sandbox);
    command.args(args).envs(variables.iter().copied());
    run(&mut command)
}

fn write(sandbox: &Sandbox, path: &str, text: &str) -> String {
    let path = sandbox.path(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

const USER: &str = "home/.config/wafcc/wafcc.conf";
const STORE: &str = "home/.cache/wafcc/wafcc.conf";

/// Variables override the user's file, which overrides the store's. Each value is shown with its origin.
#[test]
fn settings_are_shown_with_their_origin() {
    let sandbox = Sandbox::new();
    let user = write(
        &sandbox,
        USER,
        "# mine\nmax_size = 2G\nnamespace = user\nbase_dir = /user\n",
    );
    let store = write(&sandbox, STORE, "max_size = 1G\naudit = 5\nnamespace = store\n");
    let text = run_wafcc(&sandbox, &["--show-config"], &[("WAFCC_NAMESPACE", "variable")]).succeeded();
    for line in [
        format!("({user}) max_size = 2G"),
        format!("({store}) audit = 5"),
        format!("({user}) base_dir = /user"),
        "(environment: WAFCC_NAMESPACE) namespace = variable".to_owned(),
        "(default) read_only = no".to_owned(),
        format!("(place) store = {}", sandbox.name("home/.cache/wafcc")),
        format!("(place) runtime_dir = {}", sandbox.runtime().display()),
        format!("(place) config_path = {user}"),
    ] {
        assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
    }
}

/// The XDG variables choose the folders of the files. `WAFCC_CONFIGPATH` names the only file.
#[test]
fn files_are_where_the_environment_says() {
    let sandbox = Sandbox::new();
    write(&sandbox, USER, "namespace = home\n");
    write(&sandbox, STORE, "audit = 5\n");
    write(&sandbox, "config/wafcc/wafcc.conf", "namespace = xdg\n");
    let chosen = write(&sandbox, "chosen", "namespace = chosen\n");
    let config = sandbox.name("config");
    let get = |name, variables: &[(&str, &str)]| run_wafcc(&sandbox, &["-k", name], variables).succeeded();
    assert_eq!(get("namespace", &[]), "home\n");
    assert_eq!(get("audit", &[]), "5\n");
    assert_eq!(get("namespace", &[("XDG_CONFIG_HOME", &config)]), "xdg\n");
    let both = [("XDG_CONFIG_HOME", &*config), ("WAFCC_CONFIGPATH", &*chosen)];
    assert_eq!(get("namespace", &both), "chosen\n");
    assert_eq!(get("audit", &both), "0\n");
    let cache = sandbox.name("xdg-cache");
    let store = get("store", &[("XDG_CACHE_HOME", &cache)]);
    assert_eq!(store, format!("{cache}/wafcc\n"));
}

/// A setting is written to the file from which it is read, and the rest of the file stays. For a store, that is the
/// store's file.
#[test]
fn a_setting_can_be_written() {
    let sandbox = Sandbox::new();
    let user = write(&sandbox, USER, "# mine\nmax_size = 2G\n");
    assert_eq!(
        run_wafcc(&sandbox, &["--max-size", "3G", "-o", "namespace = a"], &[]).succeeded(),
        ""
    );
    assert_eq!(
        fs::read_to_string(&user).unwrap(),
        "# mine\nmax_size = 3G\nnamespace = a\n"
    );
    let store = [("WAFCC_DIR", &*sandbox.name("store"))];
    assert_eq!(
        run_wafcc(&sandbox, &["--set-config", "max_size=4Gi"], &store).succeeded(),
        ""
    );
    let own = fs::read_to_string(sandbox.path("store/wafcc.conf")).unwrap();
    assert_eq!(own, "max_size = 4Gi\n");
    assert_eq!(
        fs::read_dir(sandbox.path("store")).unwrap().count(),
        1,
        "nothing is left over"
    );
    // The user's file overrides that of any store.
    assert_eq!(run_wafcc(&sandbox, &["-k", "max_size"], &store).succeeded(), "3G\n");
    assert!(!sandbox.socket().exists(), "no engine is started for that");
}

/// If the file of settings is a link, it stays a link.
#[test]
fn a_linked_file_stays_linked() {
    let sandbox = Sandbox::new();
    let kept = write(&sandbox, "dotfiles/wafcc.conf", "");
    fs::create_dir_all(sandbox.path(USER).parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(&kept, sandbox.path(USER)).unwrap();
    run_wafcc(&sandbox, &["--audit", "2%"], &[]).succeeded();
    assert_eq!(fs::read_to_string(kept).unwrap(), "audit = 2%\n");
    assert!(fs::symlink_metadata(sandbox.path(USER)).unwrap().is_symlink());
}

/// Mistakes in files and variables are reported with the nearest known name, and no command fails because of them.
#[test]
fn mistakes_are_named_and_stop_no_command() {
    let sandbox = Sandbox::started();
    let user = write(&sandbox, USER, "max_sise = 2G\naudit = much\nnothing\n");
    let bad = [("WAFCC_COMPRESSION", "zip")];
    let said = run_wafcc(&sandbox, &["--show-config"], &bad);
    assert_eq!(said.status, Some(1));
    assert_eq!(said.stderr.lines().count(), 1, "{said:?}");
    for part in [
        &*format!("{user}:1: there is no setting max_sise; did you mean max_size?"),
        &*format!("{user}:2: audit: \"much\" is not a percentage"),
        &*format!("{user}:3: \"nothing\" is not NAME = VALUE"),
        "WAFCC_COMPRESSION: compression: set it to auto, no, or a level",
    ] {
        assert!(said.stderr.contains(part), "{part} in {said:?}");
    }
    let said = run_wafcc(&sandbox, &["echo", "fine"], &bad);
    assert_eq!((&*said.stdout, &*said.stderr, said.status), ("fine\n", "", Some(0)));
}

/// A file can disable the engine, and a variable can enable it again.
#[test]
fn a_file_can_disable() {
    let sandbox = Sandbox::started();
    write(&sandbox, USER, "disable = true\n");
    let count = || sandbox.status()["totals"]["succeeded"].clone();
    run_wafcc(&sandbox, &["true"], &[]).succeeded();
    assert_eq!(count(), 0);
    run_wafcc(&sandbox, &["true"], &[("WAFCC_DISABLE", "no")]).succeeded();
    assert_eq!(count(), 1);
}

/// A setting that cannot be written or does not exist is one line and an exit status.
#[test]
fn mistakes_on_the_command_line_are_one_line() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path("file"), "").unwrap();
    let below = sandbox.name("file/wafcc.conf");
    let no_home = [("HOME", "")];
    let store = sandbox.name("store");
    for (args, variables, status, part) in [
        (&["-k", "max_sise"][..], &[][..], 1, "did you mean max_size?"),
        (&["-o", "max_size=5G"], &[("WAFCC_CONFIGPATH", &*below)], 1, "write "),
        (&["-o", "max_size=5G"], &no_home, 1, "WAFCC_CONFIGPATH"),
        (&["-s"], &no_home, 1, "WAFCC_DIR"),
        (&["-o", "cache_dir=/x"], &[("WAFCC_DIR", &*store)], 1, "unset WAFCC_DIR"),
        (&["-o", "max_size=5Q"], &[], 2, "5G"),
    ] {
        let said = run_wafcc(&sandbox, args, variables);
        assert_eq!(said.status, Some(status), "{args:?}: {said:?}");
        assert_eq!(said.stderr.lines().count(), 1, "{args:?}: {said:?}");
        assert!(
            said.stderr.starts_with("wafcc: ") && said.stderr.contains(part),
            "{said:?}"
        );
    }
}
