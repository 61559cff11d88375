//! Prompts that an agent would not hand to its model.

use stockade_core::profile::Profile;

/// The command of its own that the agent would run instead of sending `prompt` to the model, if there is one.
///
/// A prompt counts when its first word, white space before it left out, is a command in any case of letters. The
/// remedy is to put a word in front.
pub fn command_in_prompt<'p>(profile: &'p Profile, prompt: &str) -> Option<&'p str> {
    let word = prompt.split_whitespace().next()?;
    profile.launch.prompt_commands.iter().find(|c| c.eq_ignore_ascii_case(word)).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find;

    #[test]
    fn finds_commands_and_leaves_paths_alone() {
        let grok = find("grok").unwrap().load().unwrap().profile;
        for prompt in ["/compact", "/compact now", " \n/Compact", "/context\nmore", "/YOLO"] {
            assert!(command_in_prompt(&grok, prompt).is_some(), "{prompt:?}");
        }
        for prompt in ["/compactor", "/home/x is broken", "run /compact", "/help", "", "//compact"] {
            assert_eq!(command_in_prompt(&grok, prompt), None, "{prompt:?}");
        }
    }
}
