//! Prints the table of keys: the reference, the template, and the effective configuration.
//!
//! All three are made from the same table, so none can lag behind the program. None shows a secret.

use std::fmt::Write;

use super::TABLES;
use super::key::{Key, joined};
use super::resolve::LoadedConfig;
use super::value::MASK;

/// `docs/config.md`: the rules in short and every key, a table per section. A test keeps the file equal to this.
pub fn docs() -> String {
    let mut page = String::from(
        "<!-- Made by `larder config docs` from crates/config/src/lib.rs: change it there. -->\n\
        # Configuration\n\n\
        `larder serve` runs without any configuration. You can set each value in three places, and the first one\n\
        that has it wins:\n\n\
        1. a flag: `--aur-rate-limit 0`,\n\
        2. a variable of the environment: `LARDER_AUR_RATE_LIMIT=0` (an empty one counts as not set),\n\
        3. the file: `rate_limit = 0` below `[aur]`.\n\n\
        The file is the one named by `--config FILE` or `$LARDER_CONFIG`; else `$XDG_CONFIG_HOME/larder/config.toml`\n\
        (`~/.config` without that variable), else `/etc/larder/config.toml`, where these exist. `--config \"\"` reads none.\n\n\
        - Lists are arrays in the file and have commas elsewhere; a list flag may also be repeated.\n\
        - The flag of a switch alone means `true`; `--metrics-enabled=false` and `--metrics-enabled false` are the same.\n\
        - Times are whole seconds, sizes are bytes.\n\
        - An unknown key in the file is an error that names line, column and the nearest known key; an unknown `LARDER_…`\n  \
          variable is a warning.\n\
        - A bad value is an error that names the key, the value, where it came from and what was expected. The exit code is\n  \
          78, or 2 if only flags are wrong.\n\
        - `larder config check` says whether all is well, `config show` prints every value with its origin, `config init`\n  \
          prints a commented file to start from, and `config import-goaurrpc FILE` translates goaurrpc's.\n",
    );
    for table in TABLES {
        let title = if table.section.is_empty() {
            "Top of the file".to_owned()
        } else {
            format!("[{}]", table.section)
        };
        _ = write!(page, "\n## {title}\n\n");
        if !table.section.is_empty() {
            _ = write!(page, "{}\n\n", joined(table.doc));
        }
        page.push_str("| key | flag, variable | value | default | meaning |\n| --- | --- | --- | --- | --- |\n");
        for key in table.keys {
            let default = if key.default.is_empty() {
                "none".to_owned()
            } else {
                format!("`{}`", key.default)
            };
            _ = writeln!(
                page,
                "| `{}` | `--{}` `{}` | {} | {default} | {} |",
                key.name,
                key.flag(),
                key.variable(),
                key.kind.expected().replace('|', "\\|"),
                key.help().replace('|', "\\|"),
            );
        }
    }
    page
}

/// A configuration file with every key commented out at its default: `# ` begins a remark, `#` alone a key.
pub fn template() -> String {
    let mut file = String::from(
        "# Configuration of larder. Every line that begins with `#` and a name shows a default: remove the `#` to change it.\n\
        # An empty text means: not set. `larder config check` finds mistakes, `larder config show` prints what is in force.\n",
    );
    for table in TABLES {
        if !table.section.is_empty() {
            file.push('\n');
            remark(&mut file, &joined(table.doc));
            _ = writeln!(file, "[{}]", table.section);
        }
        for key in table.keys {
            file.push('\n');
            remark(&mut file, &key.help());
            let value = key.kind.toml(&key.default_texts());
            _ = writeln!(file, "#{} = {value}", key.name);
        }
    }
    file
}

/// The effective configuration as TOML, each value followed by its origin. Keys that are not set and secrets are in comments,
/// so that the text can be used as a file again.
pub fn show(loaded: &LoadedConfig) -> String {
    let mut text = match &loaded.file {
        Some(file) => format!("# effective configuration; file: {}\n", file.display()),
        None => "# effective configuration; no file was read\n".to_owned(),
    };
    for warning in &loaded.warnings {
        _ = writeln!(text, "# warning: {warning}");
    }
    let mut section = "";
    for setting in &loaded.settings {
        let Key { name, kind, .. } = setting.key;
        if setting.key.section != section {
            section = setting.key.section;
            _ = write!(text, "\n[{section}]\n");
        }
        let value = kind.toml(&setting.texts);
        let origin = &setting.origin;
        _ = match (kind, setting.texts.as_slice()) {
            (_, [only]) if only.contains(MASK) => {
                writeln!(text, "#{name} = {value}  # {origin}; the secret is not shown")
            }
            (_, []) if !kind.is_list() => writeln!(text, "#{name} = \"\"  # {origin}; not set"),
            _ => writeln!(text, "{name} = {value}  # {origin}"),
        };
    }
    text
}

/// Writes a remark, in lines of at most 100 characters.
fn remark(file: &mut String, text: &str) {
    let mut line = String::from("#");
    for word in text.split(' ') {
        if line.chars().count() + 1 + word.chars().count() > 100 {
            _ = writeln!(file, "{line}");
            line = String::from("#");
        }
        line.push(' ');
        line.push_str(word);
    }
    _ = writeln!(file, "{line}");
}
