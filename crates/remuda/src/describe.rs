//! `remuda describe`: the command line as data, of which releases make manual pages.

use clap::{Arg, ArgAction, Command};
use serde_json::{Value, json};

/// A command with everything below it; what is hidden is left out.
pub(crate) fn tree(mut command: Command) -> Value {
    // Arguments for all commands are handed down by this.
    command.build();
    describe(&command)
}

fn describe(command: &Command) -> Value {
    let text = |text: Option<&clap::builder::StyledStr>| text.map(ToString::to_string);
    let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set());
    // Every command has these, and no page needs to say it each time. An argument may be called --version and be
    // that of a cluster.
    let is_usual = |argument: &Arg| {
        use ArgAction::{Help, HelpLong, HelpShort, Version};
        matches!(argument.get_action(), Help | HelpShort | HelpLong | Version)
    };
    let arguments = arguments.filter(|argument| !is_usual(argument));
    let commands =
        command.get_subcommands().filter(|inner| !inner.is_hide_set() && inner.get_name() != "help");
    json!({
        "name": command.get_name(),
        "version": command.get_version(),
        "about": text(command.get_about()),
        "longAbout": text(command.get_long_about()),
        "afterHelp": text(command.get_after_help()),
        "arguments": arguments.map(argument).collect::<Vec<_>>(),
        "commands": commands.map(describe).collect::<Vec<_>>(),
    })
}

fn argument(argument: &Arg) -> Value {
    let names = argument.get_value_names().unwrap_or_default();
    let defaults = argument.get_default_values().iter().map(|value| value.to_string_lossy().into_owned());
    let possible = argument.get_possible_values();
    let possible =
        possible.iter().filter(|value| !value.is_hide_set()).map(clap::builder::PossibleValue::get_name);
    let takes_value = argument.get_action().takes_values();
    let environment = argument.get_env().filter(|_| !argument.is_hide_env_set());
    json!({
        "id": argument.get_id().as_str(),
        "short": argument.get_short(),
        "long": argument.get_long(),
        "required": argument.is_required_set(),
        "takesValue": takes_value,
        "many": matches!(argument.get_action(), ArgAction::Append),
        "valueNames": names.iter().map(clap::builder::Str::as_str).collect::<Vec<_>>(),
        "defaults": defaults.collect::<Vec<_>>(),
        "possibleValues": if takes_value { possible.collect::<Vec<_>>() } else { Vec::new() },
        "environment": environment.map(|name| name.to_string_lossy().into_owned()),
        "help": argument.get_help().map(ToString::to_string),
        "longHelp": argument.get_long_help().map(ToString::to_string),
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::command::CommandLine;

    #[test]
    fn commands_have_texts_and_hidden_ones_are_left_out() {
        let tree = tree(CommandLine::command());
        let commands = tree["commands"].as_array().unwrap();
        let named = |name: &str| commands.iter().find(|command| command["name"] == name);
        assert!(named("complete").is_none() && named("describe").is_none() && named("help").is_none());
        let server = named("server").unwrap();
        let bind = server["arguments"].as_array().unwrap();
        let bind = bind.iter().find(|argument| argument["long"] == "bind").unwrap();
        assert_eq!(bind["valueNames"], json!(["ADDRESS:PORT"]));
        assert_eq!(bind["environment"], remuda_names::env::BIND);
        let cluster = named("cluster").unwrap()["commands"].as_array().unwrap();
        let create = cluster.iter().find(|command| command["name"] == "create").unwrap();
        let create = create["arguments"].as_array().unwrap();
        assert!(create.iter().any(|argument| argument["long"] == "version"), "that of Kubernetes");
        assert!(!create.iter().any(|argument| argument["long"] == "help"));
        for command in commands {
            assert!(command["about"].as_str().is_some_and(|about| !about.is_empty()), "{command}");
        }
    }
}
