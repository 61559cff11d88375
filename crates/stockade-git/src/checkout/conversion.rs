//! Whether git writes files as they are kept. Where it would convert any of them, it is left to do so.

use crate::layout::Repository;

/// Words of an attributes file by which contents may be converted, or that define others. Of the rest none changes what
/// is written where lines end as they do here: see gitattributes(5).
const CONVERTING: [&[u8]; 5] = [b"filter", b"ident", b"working-tree-encoding", b"crlf", b"[attr]"];

/// Whether the settings let every file be written as it is kept, every link as a link, and all of them.
pub(super) fn is_off(repository: &Repository) -> bool {
    let setting = |section, key| repository.setting(section, key).map(str::to_ascii_lowercase);
    let is_one_of =
        |section, key, harmless: &[&str]| setting(section, key).is_none_or(|v| harmless.contains(&&*v));
    let (no, yes) = (["false", "no", "off", "0"], ["true", "yes", "on", "1"]);
    is_one_of("core", "autocrlf", &["false", "no", "off", "0", "input"])
        && is_one_of("core", "eol", &["lf", "native"])
        && is_one_of("core", "symlinks", &yes)
        && is_one_of("core", "ignorecase", &no)
        && is_one_of("core", "sparsecheckout", &no)
        && is_one_of("index", "sparse", &no)
}

/// Whether an attributes file leaves contents as they are. A word that only looks like one that does not is one.
pub(super) fn is_harmless(attributes: &[u8]) -> bool {
    let text = attributes.to_ascii_lowercase();
    !CONVERTING.iter().any(|word| text.windows(word.len()).any(|w| w == *word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_leaves_contents_alone_is_harmless() {
        for text in [
            "",
            "* text=auto\n*.png binary\n",
            "*.rs text eol=lf diff=rust\nx linguist-generated -export-subst\n",
        ] {
            assert!(is_harmless(text.as_bytes()), "{text}");
        }
        for text in [
            "* eol=crlf\n",
            "* crlf\n",
            "* -crlf\n",
            "*.bin filter=lfs\n",
            "* ident",
            "x working-tree-encoding=UTF-16\n",
            "[attr]x -text\n",
            "# Filter",
        ] {
            assert!(!is_harmless(text.as_bytes()), "{text}");
        }
    }
}
