//! The table of settings: one row for each, with all that is known of it.
//!
//! To add a setting, add a row here. Its name in files and options, its variable, the check of its value, and its row
//! in `docs/wafcc.md` (written by `examples/manual.rs`) come from that row.

/// The kinds of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Made absolute when it is read. A relative folder belongs to the current folder, as in ccache.
    Folder,
    /// The same for several folders, separated by colons.
    Folders,
    Switch,
    Size,
    Level,
    Text,
    /// Files, separated by colons.
    Files,
    Percent,
    /// Addresses of shared stores, separated by blanks.
    Addresses,
    /// The file of a private key.
    PrivateKey,
    /// Public keys and files of public keys, separated by blanks.
    PublicKeys,
    /// A size, or a word for what is available.
    Memory,
    /// What is compared of texts.
    Comparison,
}

/// The program that uses a setting. A running engine has to be told when one of its settings changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    Client,
    Engine,
    /// The engine, only when it starts.
    EngineStart,
}

pub struct Row {
    pub key: Key,
    pub name: &'static str,
    pub variable: &'static str,
    pub kind: Kind,
    pub default: &'static str,
    pub reader: Reader,
    /// The names of the same setting in ccache, separated by `, `.
    pub ccache: &'static str,
    /// The description for `docs/wafcc.md`, in Markdown.
    pub about: &'static str,
}

macro_rules! settings {
    ($($key:ident $name:literal $variable:literal $kind:ident default $default:literal read by $reader:ident
        ccache $ccache:literal $about:literal;)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Key { $(#[doc = $about] $key),* }

        pub const ROWS: [Row; [$(Key::$key),*].len()] = [$(Row {
            key: Key::$key,
            name: $name,
            variable: $variable,
            kind: Kind::$kind,
            default: $default,
            reader: Reader::$reader,
            ccache: $ccache,
            about: $about,
        }),*];
    };
}

settings! {
    CacheDir "cache_dir" "WAFCC_DIR" Folder default "" read by Client ccache "cache_dir"
        "the folder of the store; if none is set, `$XDG_CACHE_HOME/wafcc`, or `~/.cache/wafcc`";
    Disable "disable" "WAFCC_DISABLE" Switch default "no" read by Client ccache "disable"
        "run the command here, without the engine";
    ReadOnly "read_only" "WAFCC_READONLY" Switch default "no" read by Client ccache "read_only"
        "use entries, add none";
    Recache "recache" "WAFCC_RECACHE" Switch default "no" read by Client ccache "recache"
        "use no entry: run the command and replace its entry";
    BaseDir "base_dir" "WAFCC_BASEDIR" Folders default "" read by Client ccache "base_dir"
        "paths below this folder may differ between two checkouts: see [below](#checkouts). Separate several folders with `:`";
    ShareCheckouts "share_checkouts" "WAFCC_SHARECHECKOUTS" Switch default "no" read by Client ccache ""
        "the same for the folder of the checkout in which a command runs, wherever it is";
    MaxSize "max_size" "WAFCC_MAXSIZE" Size default "5G" read by Engine ccache "max_size"
        "the limit of the store: `5G`, `500Mi`, `1.5TiB`. A number without a unit counts gigabytes. 0 means no limit";
    Compression "compression" "WAFCC_COMPRESSION" Level default "auto" read by EngineStart ccache "compression, compression_level"
        "`auto` (where it pays), `no`, or a level from 1 to 19";
    Namespace "namespace" "WAFCC_NAMESPACE" Text default "" read by Client ccache "namespace"
        "only clients with the same namespace find the entries";
    ExtraFiles "extra_files" "WAFCC_EXTRAFILES" Files default "" read by Client ccache "extra_files_to_hash"
        "every command depends on these files; separate them with `:`";
    Facts "facts" "WAFCC_FACTS" Switch default "no" read by Client ccache ""
        "also cache commands that are no compiles (links, archives, generators), by what they are seen to do";
    Audit "audit" "WAFCC_AUDIT" Percent default "0" read by Engine ccache ""
        "how many percent of the hits are compiled again when the engine is idle, and compared with the result that was given";
    HardLink "hard_link" "WAFCC_HARDLINK" Switch default "no" read by Engine ccache "hard_link"
        "outputs are read-only links into the store: see below";
    Remote "remote" "WAFCC_REMOTE" Addresses default "" read by Engine ccache "remote_storage"
        "stores that machines share, in order, separated by blanks: [tiers.md](tiers.md)";
    SigningKey "signing_key" "WAFCC_SIGNINGKEY" PrivateKey default "" read by Engine ccache ""
        "the private key that signs uploads: [tiers.md](tiers.md#signed-entries)";
    TrustedKeys "trusted_keys" "WAFCC_TRUSTEDKEYS" PublicKeys default "" read by Engine ccache ""
        "public keys, and files of public keys, separated by blanks. Only entries that one of them signed are taken from shared stores";
    Preambles "preambles" "WAFCC_PREAMBLES" Memory default "off" read by Engine ccache ""
        "sources that are being edited begin after their headers: how much disk that may use, `auto`, a size, or `off`: [preambles.md](preambles.md)";
    SharePreambles "share_preambles" "WAFCC_SHAREPREAMBLES" Switch default "no" read by Engine ccache ""
        "with `preambles`: sources that begin alike share their headers, in full builds, too: [preambles.md](preambles.md#headers-that-sources-share)";
    CompareTexts "compare_texts" "WAFCC_COMPARETEXTS" Comparison default "comments" read by Engine ccache ""
        "`comments`: the texts of comments do not count. `yes`: a compile without debug information is a hit, too, if the preprocessor leaves the same of its source as of an earlier one. `no`: all counts. See [wafcc.md](wafcc.md#hits-by-text)";
    ProveCommands "prove_commands" "WAFCC_PROVECOMMANDS" Switch default "no" read by Engine ccache ""
        "commands that are cached by what they do and ask for the time or for random numbers are run a second time when the engine is idle, to see whether their results show it: [wafcc.md](wafcc.md#commands-that-ask-for-the-time)";
    ProvePrograms "prove_programs" "WAFCC_PROVEPROGRAMS" Text default "" read by Engine ccache ""
        "with `prove_commands`: names of further programs of which this is to be seen, separated by blanks. `*` means all";
    CacheFailures "cache_failures" "WAFCC_CACHEFAILURES" Switch default "no" read by Engine ccache ""
        "commands that fail are cached, too, if the reason is surely in their inputs: [wafcc.md](wafcc.md#commands-that-fail)";
    Memory "memory" "WAFCC_MEMORY" Memory default "off" read by Client ccache ""
        "commands start only when they fit into memory: `auto` (what is available), a size such as `4G`, or `off`: [neighbor.md](neighbor.md#memory-that-is-remembered)";
}

/// The table for `docs/wafcc.md`.
pub fn document() -> String {
    let head = "| setting | variable | default | ccache calls it |\n| --- | --- | --- | --- |\n";
    ROWS.iter().fold(head.to_owned(), |text, row| text + &row.document())
}

impl Row {
    fn document(&self) -> String {
        let code = |text: &str| match text {
            "" => String::new(),
            _ => format!(" `{text}`"),
        };
        let default = match self.kind {
            Kind::Switch => format!(" {}", self.default),
            _ => code(self.default),
        };
        let ccache = code(&self.ccache.replace(", ", "`, `"));
        let (name, about, variable) = (self.name, self.about, self.variable);
        format!("| `{name}` {about} | `{variable}` |{default} |{ccache} |\n")
    }
}
