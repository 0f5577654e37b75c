//! Shell completion for our programs: scripts that `examples/manual` generates from their command lines.

macro_rules! texts {
    ($($name:literal),*) => {
        concat!($(include_str!(concat!("../completions/", $name))),*)
    };
}

const SHELLS: [(&str, &str); 3] = [
    ("bash", texts!("bash/wafd", "bash/wafcc", "bash/waf")),
    ("zsh", texts!("zsh/_wafd", "zsh/_wafcc", "zsh/_waf")),
    ("fish", texts!("fish/wafd.fish", "fish/wafcc.fish", "fish/waf.fish")),
];

pub const NO_SHELL: &str = "for which shell? wafd completion bash, zsh or fish";

/// The script for all our programs, to be evaluated by that shell.
pub fn script(shell: &str) -> Result<String, String> {
    match SHELLS.iter().find(|(name, _)| *name == shell) {
        Some((_, text)) => Ok((*text).to_owned()),
        None if shell.is_empty() => Err(NO_SHELL.to_owned()),
        None => Err(format!("there is no completion for {shell}: bash, zsh or fish")),
    }
}
