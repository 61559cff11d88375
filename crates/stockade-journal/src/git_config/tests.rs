use stockade_core::git_config::{Setting, settings};

use super::*;

fn setting(section: &str, sub: Option<&str>, key: &str, value: &str) -> Setting {
    Setting { section: section.into(), subsection: sub.map(Into::into), key: key.into(), value: value.into() }
}

#[test]
fn sections_quotes_escapes_comments_and_continued_lines_are_read_as_git_reads_them() {
    let text = concat!(
        "\u{feff}# comment\n",
        "[Core] Bare = false ; trailing\n",
        "\tflag\n",
        "[remote \"o\\\"ri\\\\gin\"]\n",
        "  url = \"a  b\" c # no\n",
        "  fetch = one \\\n   two\r\n",
        "  esc = \"tab\\tquote\\\"; kept\"\n",
        "[branch.Main]\n key-2=v\n",
        "[broken \"sub\n x = 1\n",
        "= nonsense\n",
        "[last]z=9"
    );
    let expected = [
        setting("core", None, "bare", "false"),
        setting("core", None, "flag", ""),
        setting("remote", Some("o\"ri\\gin"), "url", "a  b c"),
        setting("remote", Some("o\"ri\\gin"), "fetch", "one    two"),
        setting("remote", Some("o\"ri\\gin"), "esc", "tab\tquote\"; kept"),
        setting("branch", Some("main"), "key-2", "v"),
        setting("broken", Some("sub"), "x", "1"),
        setting("last", None, "z", "9"),
    ];
    assert_eq!(settings(text).collect::<Vec<_>>(), expected);
}

#[test]
fn passwords_tokens_and_headers_are_named_without_their_value() {
    let text = concat!(
        "[remote \"origin\"]\n url = https://bob:hunter2@example.org/x.git\n pushurl = ssh://git@example.org/x\n",
        "[remote \"tok\"]\n url = https://ghp_0123456789abcdef@github.com/x\n",
        "[remote \"long\"]\n url = \"https://0123456789012345678901234567890123456789@example.org/x\"\n",
        "[url \"https://u:sekret@example.org/\"]\n insteadOf = gh:\n",
        "[http \"https://example.org\"]\n extraHeader = AUTHORIZATION: basic abc\n",
        "[http]\n proxy = http://p:q@proxy:8080\n",
    );
    let keys = credential_keys(text.as_bytes());
    assert_eq!(
        keys,
        [
            "remote.origin.url",
            "remote.tok.url",
            "remote.long.url",
            "url.https://***@example.org/.insteadof",
            "http.https://example.org.extraheader",
            "http.proxy",
        ]
    );
    assert!(!keys.concat().contains("sekret"));
}

#[test]
fn ordinary_remotes_hold_no_credential() {
    let text = concat!(
        "[remote \"a\"]\n url = https://example.org/a@b:c/x.git\n",
        "[remote \"b\"]\n url = git@github.com:a/b.git\n",
        "[remote \"c\"]\n url = https://alice@example.org/x\n",
        "[remote \"d\"]\n url = https://alice:@example.org/x\n",
        "[remote \"e\"]\n url = /srv/x.git\n",
        "[http]\n extraHeader =\n",
    );
    assert_eq!(credential_keys(text.as_bytes()), Vec::<String>::new());
    assert_eq!(credential_keys(b"\xff\xfe[\x00 ==\n\"\\"), Vec::<String>::new());
}

#[test]
fn configs_of_submodules_and_worktrees_belong_to_the_repository() {
    for yes in
        [".git/config", ".git/config.worktree", ".git/modules/a/config", ".git/modules/a/modules/b/config"]
    {
        assert!(is_config_path(yes.as_bytes()), "{yes}");
    }
    for no in ["config", ".git/hooks/config", "a/.git/config", ".git/configs", ".git/modules/aconfig"] {
        assert!(!is_config_path(no.as_bytes()), "{no}");
    }
}
