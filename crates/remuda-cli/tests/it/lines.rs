//! What can be written on the command line, and what help says about it.

use clap::{CommandFactory, Parser};

use crate::world::Line;

/// Every command, down to the last.
fn all(command: &clap::Command, path: &str) -> Vec<(String, clap::Command)> {
    let mut found = vec![(path.to_owned(), command.clone())];
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
        found.extend(all(sub, format!("{path} {}", sub.get_name()).trim()));
    }
    found
}

#[test]
fn the_commands_are_those_people_know() {
    Line::command().debug_assert();
    let names: Vec<String> = all(&Line::command(), "").into_iter().map(|(path, _)| path).collect();
    assert_eq!(
        names[1..].join("\n"),
        "cluster\ncluster create\ncluster list\ncluster get\ncluster describe\ncluster delete\ncluster protect\n\
         cluster rotate-certificates\ncluster rotate-encryption-keys\ncluster hibernate\ncluster wake\ncluster expire\ncluster unprotect\ncluster scale\n\
         cluster upgrade\ncluster preflight\ncluster apply-config\ncluster edit\ncluster registration-command\ncluster logs\n\
         assets\nassets add\nassets list\ncapi\ncapi provider\ncapi provider list\ncapi provider run\ncapi reclaim\ncapi repository\nmachine\nmachine list\nmachine describe\nmachine logs\nmachine shell\nmachine ssh\nmachine delete\nmachine cordon\nmachine uncordon\n\
         machine drain\nmachine restart\nmachine serve-driver\nmachine orphans\nclusters\nmachines\ngenerate\ngenerate cluster\n\
         get\nget clusters\nget machines\nget kubeconfig\nkubeconfig\nkubeconfig merge\nkubeconfig credential\nlogin\nlogout\nsnapshot\nsnapshot create\nsnapshot list\n\
         snapshot describe\nsnapshot restore\nsnapshot delete\ntoken\ntoken create\ntoken list\ntoken revoke\nuser\nuser create\nuser list\nuser disable\n\
         user enable\nuser delete\nuser password\nuser second-factor\nuser second-factor enrol\n\
         user second-factor remove\nuser second-factor reset\nuser grant\nuser revoke\nversions\nwhy"
    );
}

#[test]
fn every_command_has_help_with_examples() {
    for (path, mut command) in all(&Line::command(), "") {
        let help = command.render_long_help().to_string();
        assert!(command.get_about().is_some() || path.is_empty(), "{path}");
        if !command.has_subcommands() {
            assert!(help.contains("Examples:\n  remuda "), "{path}: {help}");
            assert!(help.contains(&format!("remuda {path}")), "{path}: {help}");
        }
        for argument in command.get_arguments() {
            // A bare name says what it is.
            let obvious = argument.get_id() == "name" || argument.get_id() == "help";
            assert!(obvious || argument.get_help().is_some(), "{path} {}", argument.get_id());
        }
    }
}

/// Examples in help are command lines that are understood.
#[test]
fn examples_are_understood() {
    for (path, mut command) in all(&Line::command(), "") {
        let help = command.render_long_help().to_string().replace("\\\n", " ");
        let Some((_, examples)) = help.split_once("Examples:\n") else { continue };
        for line in examples.lines().map(str::trim) {
            let Some(start) =
                line.find("remuda ").filter(|start| *start == 0 || line[..*start].ends_with("' "))
            else {
                continue;
            };
            // What follows is the shell's, or a remark.
            let line = line[start..].split(['|', '>', '<']).next().unwrap();
            let line = line.split("   ").next().unwrap();
            let words = line.split_whitespace();
            assert!(Line::try_parse_from(words).is_ok(), "{path}: {line}");
        }
    }
}

#[test]
fn the_server_can_be_named_before_and_after_the_command() {
    for line in [
        "remuda cluster -n team list",
        "remuda cluster list -n team --kubeconfig /x --context y",
        "remuda why demo --data-dir /x -n team",
        "remuda machine list -c demo",
        "remuda get kubeconfig demo -n team -o -",
    ] {
        assert!(Line::try_parse_from(line.split_whitespace()).is_ok(), "{line}");
    }
}

#[test]
fn what_makes_no_sense_together_is_refused() {
    for line in [
        "remuda cluster create",
        "remuda cluster create demo -f x.yaml",
        "remuda cluster create -f x.yaml --servers 3",
        "remuda cluster create demo --custom --servers 3",
        "remuda cluster create demo --pool name=a,roles=all --servers 3",
        "remuda cluster create demo --pool name=a,roles=king",
        "remuda cluster create demo --timeout soon",
        "remuda cluster delete",
        "remuda cluster delete demo --all",
        "remuda cluster scale demo",
        "remuda cluster upgrade demo",
        "remuda cluster expire demo",
        "remuda cluster expire demo --in 3d --never",
        "remuda cluster hibernate demo --wake-schedule @daily",
        "remuda cluster hibernate demo --schedule @daily --wait",
        "remuda kubeconfig merge",
        "remuda get clusters demo -A",
        "remuda machine delete",
    ] {
        assert!(Line::try_parse_from(line.split_whitespace()).is_err(), "{line}");
    }
}
