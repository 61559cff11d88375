//! The configuration of a private folder: written anew, with what changes how files are read and written, and nothing
//! that names a program, a place or a secret.

use std::fmt::Write as _;

use stockade_core::git::{GitWorkspace, WorkTree};

use crate::layout::Repository;

/// Settings that are carried over.
const CARRIED: [(&str, &str); 14] = [
    ("core", "filemode"),
    ("core", "symlinks"),
    ("core", "ignorecase"),
    ("core", "precomposeunicode"),
    ("core", "autocrlf"),
    ("core", "eol"),
    ("core", "safecrlf"),
    ("core", "whitespace"),
    ("core", "sparsecheckout"),
    ("core", "sparsecheckoutcone"),
    ("index", "sparse"),
    ("diff", "algorithm"),
    ("diff", "renames"),
    ("merge", "conflictstyle"),
];

pub(super) fn text(repository: &Repository, workspace: &GitWorkspace) -> String {
    let mut text = String::new();
    let mut set = |section: &str, key: &str, value: &str| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "[{section}]\n\t{key} = {}", quoted(value));
    };
    let sha256 = repository.setting("extensions", "objectformat") == Some("sha256");
    set("core", "repositoryformatversion", if sha256 { "1" } else { "0" });
    set("core", "bare", "false");
    set("core", "logallrefupdates", "true");
    if sha256 {
        set("extensions", "objectformat", "sha256");
    }
    for (section, key) in CARRIED {
        if let Some(value) = repository.setting(section, key).filter(|v| !v.is_empty()) {
            set(section, key, value);
        }
    }
    if workspace.tree != WorkTree::Made {
        // The owner of a file is another number inside, which says nothing about its content.
        set("core", "checkstat", "minimal");
    }
    set("diff", "ignoresubmodules", "all");
    // What is worth keeping is in the caller's repository when the run is over.
    set("core", "fsync", "none");
    // Nothing starts by itself.
    set("gc", "auto", "0");
    set("maintenance", "auto", "false");
    if let Some(author) = &workspace.author {
        set("user", "name", &author.name);
        set("user", "email", &author.email);
    }
    text
}

fn quoted(value: &str) -> String {
    let mut text = String::from("\"");
    for c in value.chars() {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            '\n' => text.push_str("\\n"),
            '\t' => text.push_str("\\t"),
            c if c.is_control() => {}
            c => text.push(c),
        }
    }
    text.push('"');
    text
}
