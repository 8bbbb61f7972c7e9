//! Manual pages and completions, of what the program says about its command line.

use std::{path::Path, process::Command as Process};

use anyhow::{Context, bail};
use clap::{Arg, ArgAction, Command, builder::PossibleValuesParser};
use clap_mangen::Man;
use remuda_names::PROGRAM;
use serde_json::Value;

/// Shells there are completions for.
const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];

/// Texts for people, by file name or shell.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pages {
    /// `remuda.1`, `remuda-cluster.1`, …
    pub(crate) manual: Vec<(String, Vec<u8>)>,
    /// By shell.
    pub(crate) completions: Vec<(String, Vec<u8>)>,
}

impl Pages {
    /// Asks a program that runs on this host.
    pub(crate) fn of(program: &Path) -> anyhow::Result<Pages> {
        let tree = ask(program, &["describe"])?;
        let tree: Value = serde_json::from_slice(&tree).context("read what the program says about itself")?;
        let mut manual = Vec::new();
        write(&command(&tree)?, PROGRAM, &mut manual)?;
        let completions = SHELLS
            .iter()
            .map(|shell| Ok(((*shell).to_owned(), ask(program, &["completion", shell])?)))
            .collect::<anyhow::Result<_>>()?;
        Ok(Pages { manual, completions })
    }
}

/// What a program prints when it is called like this.
pub(crate) fn ask(program: &Path, arguments: &[&str]) -> anyhow::Result<Vec<u8>> {
    let output = Process::new(program)
        .args(arguments)
        .output()
        .with_context(|| format!("start {}", program.display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{} {} ended with {}: {said}", program.display(), arguments.join(" "), output.status);
    }
    Ok(output.stdout)
}

/// One page for each command, as `git` has them.
fn write(command: &Command, name: &str, pages: &mut Vec<(String, Vec<u8>)>) -> anyhow::Result<()> {
    let mut page = Vec::new();
    let named = command.clone().display_name(name).bin_name(name.replace('-', " "));
    // The date of a page would be that of the build, so it has none.
    Man::new(named).title(name.to_uppercase()).date("").render(&mut page)?;
    pages.push((format!("{name}.1"), page));
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        write(inner, &format!("{name}-{}", inner.get_name()), pages)?;
    }
    Ok(())
}

/// Texts live as long as the process: clap keeps names it can compare by address.
fn text(value: &Value) -> &'static str {
    value.as_str().map_or("", |text| Box::leak(text.to_owned().into_boxed_str()))
}

fn texts(value: &Value) -> Vec<&'static str> {
    value.as_array().into_iter().flatten().map(text).collect()
}

/// A command as `remuda describe` prints it.
fn command(tree: &Value) -> anyhow::Result<Command> {
    let name = text(&tree["name"]);
    if name.is_empty() {
        bail!("a command without a name: {tree}");
    }
    let mut command = Command::new(name).disable_help_flag(true).disable_help_subcommand(true);
    if let Some(version) = tree["version"].as_str() {
        command =
            command.version(&*Box::leak(version.to_owned().into_boxed_str())).disable_version_flag(true);
    }
    command = command.about(text(&tree["about"]));
    if !tree["longAbout"].is_null() {
        command = command.long_about(text(&tree["longAbout"]));
    }
    if !tree["afterHelp"].is_null() {
        command = command.after_help(text(&tree["afterHelp"]));
    }
    for argument in tree["arguments"].as_array().into_iter().flatten() {
        command = command.arg(self::argument(argument));
    }
    for inner in tree["commands"].as_array().into_iter().flatten() {
        command = command.subcommand(self::command(inner)?);
    }
    Ok(command)
}

fn argument(value: &Value) -> Arg {
    let mut argument = Arg::new(text(&value["id"])).required(value["required"] == true);
    if let Some(short) = value["short"].as_str().and_then(|short| short.chars().next()) {
        argument = argument.short(short);
    }
    if !value["long"].is_null() {
        argument = argument.long(text(&value["long"]));
    }
    argument = argument.help(text(&value["help"]));
    if !value["longHelp"].is_null() {
        argument = argument.long_help(text(&value["longHelp"]));
    }
    if !value["environment"].is_null() {
        argument = argument.env(text(&value["environment"])).hide_env_values(true);
    }
    if value["takesValue"] == true {
        let names = texts(&value["valueNames"]);
        let many = value["many"] == true;
        argument = argument.action(if many { ArgAction::Append } else { ArgAction::Set });
        if !names.is_empty() {
            argument = argument.value_names(names);
        }
        let possible = texts(&value["possibleValues"]);
        if !possible.is_empty() {
            argument = argument.value_parser(PossibleValuesParser::new(possible));
        }
        let defaults = texts(&value["defaults"]);
        if !defaults.is_empty() {
            argument = argument.default_values(defaults);
        }
    } else {
        argument = argument.action(ArgAction::SetTrue);
    }
    argument
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_page_has_what_the_program_says() {
        let tree = json!({
            "name": "remuda", "version": "0.1.0", "about": "Does things", "afterHelp": "Examples:\n  remuda x",
            "arguments": [
                {"id": "file", "required": true, "takesValue": true, "valueNames": ["FILE"], "help": "What to read"},
                {"id": "wait", "long": "wait", "short": "w", "help": "Stay", "takesValue": false},
                {"id": "as", "long": "as", "help": "How", "takesValue": true, "possibleValues": ["a", "b"],
                 "defaults": ["a"], "environment": "REMUDA_AS"},
            ],
            "commands": [{"name": "sub", "about": "Less", "arguments": [], "commands": []}],
        });
        let mut pages = Vec::new();
        write(&command(&tree).unwrap(), "remuda", &mut pages).unwrap();
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["remuda.1", "remuda-sub.1"]);
        let page = String::from_utf8(pages[0].1.clone()).unwrap();
        for text in ["Does things", "Examples", "What to read", "wait", "REMUDA", "remuda\\-sub"] {
            assert!(page.contains(text), "{text} is missing:\n{page}");
        }
        assert!(command(&json!({})).is_err());
    }
}
