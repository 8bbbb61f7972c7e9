//! Completions: a script for the shell, and the names it asks for while a command line is typed.
//!
//! Scripts know commands and flags by themselves. For a word that is the name of a cluster or a machine they ask the
//! hidden command `remuda complete`, which looks at the words so far and asks the server if there is one.

use clap::{Arg, Command};
use clap_complete::Shell;
use remuda_cli::{Global, Named};
use remuda_names::PROGRAM;

use crate::{failure::Failure, output, serve};

/// The script of a shell, as it is sourced.
pub(crate) fn script(shell: Shell, mut command: Command) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, PROGRAM, &mut script);
    let asking = match shell {
        Shell::Bash => BASH,
        Shell::Zsh => ZSH,
        Shell::Fish => FISH,
        _ => "",
    };
    script.extend_from_slice(asking.as_bytes());
    script
}

const BASH: &str = r#"
_remuda_names() {
    local names
    names=$("${COMP_WORDS[0]}" complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    if [ -n "$names" ]; then
        local IFS=$'\n'
        COMPREPLY=($names)
    else
        _remuda "$@"
    fi
}
complete -F _remuda_names -o bashdefault -o default remuda
"#;

const ZSH: &str = r#"
_remuda_names() {
    local -a names
    names=(${(f)"$($words[1] complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    if (( $#names )); then compadd -a names; else _remuda "$@"; fi
}
if (( $+functions[compdef] )); then compdef _remuda_names remuda; fi
"#;

const FISH: &str = r#"
complete -c remuda -f -a '(remuda complete -- (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'
"#;

/// Prints the names the last word can be, one on each line, or nothing.
pub(crate) fn run(command: &Command, words: &[String]) -> Result<(), Failure> {
    let Some(Wanted { named, global }) = wanted(command, words) else { return Ok(()) };
    let begun = words.last().map(String::as_str).unwrap_or_default();
    let names = serve::runtime()?.block_on(remuda_cli::names(&global, named));
    names.iter().filter(|name| name.starts_with(begun)).for_each(|name| output::line(name));
    Ok(())
}

/// Which names the last word is one of, and at which server.
struct Wanted {
    named: Named,
    global: Global,
}

fn wanted(root: &Command, words: &[String]) -> Option<Wanted> {
    let (last, before) = words.split_last()?;
    let mut command = root;
    let mut global = Global::default();
    let mut positionals = 0;
    let mut pending: Option<&Arg> = None;
    for word in before {
        if let Some(option) = pending.take() {
            note(&mut global, option, word);
        } else if word == "--" {
            // What comes now is for another program.
            return None;
        } else if let Some(option) = option(root, command, word) {
            match word.split_once('=') {
                Some((_, value)) => note(&mut global, option, value),
                None => pending = Some(option).filter(|option| option.get_action().takes_values()),
            }
        } else if word.starts_with('-') {
            // A flag this program does not know.
        } else if let Some(inner) = command.find_subcommand(word).filter(|_| positionals == 0) {
            command = inner;
        } else {
            positionals += 1;
        }
    }
    let argument = match pending {
        Some(option) => option,
        None if last.starts_with('-') => return None,
        None => {
            let known: Vec<&Arg> = command.get_positionals().collect();
            let many =
                known.last().filter(|last| last.get_num_args().is_some_and(|count| count.max_values() > 1));
            known.get(positionals).or(many).copied()?
        }
    };
    let named = named(argument);
    (named != Named::default()).then_some(Wanted { named, global })
}

/// Arguments say by the name of their value what they are names of.
fn named(argument: &Arg) -> Named {
    let values = argument.get_value_names().unwrap_or_default();
    let has = |kind: &str| values.iter().any(|value| value.split('|').any(|value| value == kind));
    Named { clusters: has("CLUSTER"), machines: has("MACHINE") }
}

/// The option a word names, of the command or of one around it.
fn option<'a>(root: &'a Command, command: &'a Command, word: &str) -> Option<&'a Arg> {
    let name = word.split('=').next().unwrap_or(word);
    let fits = |argument: &&Arg| match name.strip_prefix("--") {
        Some(long) => argument.get_long_and_visible_aliases().is_some_and(|names| names.contains(&long)),
        None => {
            let short = name.strip_prefix('-').filter(|rest| rest.chars().count() == 1);
            let short = short.and_then(|rest| rest.chars().next());
            short.is_some_and(|short| argument.get_short() == Some(short))
        }
    };
    // Options of all commands are of a command around it, whichever that is.
    let around =
        root.get_subcommands().flat_map(Command::get_arguments).filter(|argument| argument.is_global_set());
    command.get_arguments().chain(around).find(fits)
}

/// Which server the command line names.
fn note(global: &mut Global, option: &Arg, value: &str) {
    match option.get_long() {
        Some("kubeconfig") => global.kubeconfig = Some(value.into()),
        Some("context") => global.context = Some(value.to_owned()),
        Some("data-dir") => global.data_dir = Some(value.into()),
        Some("namespace") => global.namespace = Some(value.to_owned()),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::command::CommandLine;

    /// The last word is what is being typed.
    #[track_caller]
    fn check(line: &str, clusters: bool, machines: bool) {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let found = wanted(&CommandLine::command(), &words).map(|wanted| wanted.named).unwrap_or_default();
        assert_eq!(found, Named { clusters, machines }, "{line}");
    }

    #[test]
    fn names_are_offered_where_commands_take_them() {
        for line in [
            "cluster get ",
            "cluster delete d",
            "cluster delete demo ",
            "cluster scale ",
            "cluster --data-dir /x describe ",
            "-n x cluster get ",
            "get kubeconfig ",
            "get clusters ",
            "kubeconfig merge demo ",
            "machine list --cluster ",
            "machine list -c d",
        ] {
            check(line, true, false);
        }
        for line in ["machine drain ", "machine shell ", "machine delete a b", "machine logs --follow "] {
            check(line, false, true);
        }
        check("why ", true, true);
        for line in
            ["", "clu", "cluster ", "cluster get --", "cluster get demo ", "machine shell m -- ", "server "]
        {
            check(line, false, false);
        }
    }

    #[test]
    fn the_server_is_the_one_the_line_names() {
        let line = "machine --data-dir=/x --kubeconfig /k --context c drain -n team ";
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let global = wanted(&CommandLine::command(), &words).unwrap().global;
        assert_eq!(global.data_dir.as_deref(), Some("/x".as_ref()));
        assert_eq!(global.kubeconfig.as_deref(), Some("/k".as_ref()));
        assert_eq!((global.context.as_deref(), global.namespace.as_deref()), (Some("c"), Some("team")));
    }
}
