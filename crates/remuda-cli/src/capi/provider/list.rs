//! `remuda capi provider list`: what is installed, and whether anything answers for it.

use remuda_api::clusterctl;
use serde_json::{Value, json};

use super::{
    find::{self, Entry},
    run::is_answered,
    webhooks,
};
use crate::{
    api::{self, Which},
    failure::Failure,
    output::Format,
    session::Session,
    table::{Cell, Table, Tone},
};

/// What becomes of a provider's webhooks.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Answers {
    /// It is part of the server.
    Here,
    NoWebhooks,
    /// By what their URLs or Services lead to.
    All,
    /// So many lead to Services without endpoints, or to programs that do not answer.
    Missing(usize, String),
}

impl Answers {
    fn cell(&self) -> Cell {
        match self {
            Answers::Here => Cell::toned("part of this server", Tone::Good),
            Answers::NoWebhooks => Cell::from("none"),
            Answers::All => Cell::toned("answered", Tone::Good),
            Answers::Missing(count, lead_to) => {
                Cell::toned(format!("{count} not answered: {lead_to}"), Tone::Bad)
            }
        }
    }
}

pub(super) async fn run(session: &Session, output: Format) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for entry in find::inventory(session).await? {
        let answers = answers(session, &entry).await?;
        rows.push((entry, answers));
    }
    match output {
        Format::Json | Format::Yaml => {
            let items: Vec<Value> = rows.iter().map(|(entry, answers)| document(entry, answers)).collect();
            session.out.document(&json!({"items": items}), output)
        }
        Format::Name => {
            rows.iter().for_each(|(entry, _)| session.out.line(&entry.instance));
            Ok(())
        }
        Format::Table | Format::Wide => {
            let mut table = Table::new(["NAME", "TYPE", "VERSION", "NAMESPACE", "WEBHOOKS"]);
            for (entry, answers) in &rows {
                let texts = [&entry.instance, &entry.short_kind(), &entry.version, &entry.namespace];
                let mut cells: Vec<Cell> = texts.into_iter().map(|text| Cell::from(text.as_str())).collect();
                cells.push(answers.cell());
                table.row(cells);
            }
            session.out.table(&table, output);
            let missing = rows.iter().find(|(_, answers)| matches!(answers, Answers::Missing(..)));
            if let Some((entry, _)) = missing {
                session.out.note(&format!(
                    "writes of its kinds fail until it runs: remuda capi provider run {} -- PROGRAM",
                    entry.instance
                ));
            }
            Ok(())
        }
    }
}

fn document(entry: &Entry, answers: &Answers) -> Value {
    let (state, missing) = match answers {
        Answers::Here => ("built-in", 0),
        Answers::NoWebhooks => ("none", 0),
        Answers::All => ("answered", 0),
        Answers::Missing(count, _) => ("not-answered", *count),
    };
    json!({
        "name": entry.instance, "type": entry.kind, "version": entry.version, "namespace": entry.namespace,
        "webhooks": state, "webhooksNotAnswered": missing,
    })
}

async fn answers(session: &Session, entry: &Entry) -> Result<Answers, Failure> {
    if entry.is_built_in() {
        return Ok(Answers::Here);
    }
    let objects = webhooks::of_provider(session, &entry.instance).await?;
    let clients: Vec<&Value> = objects
        .iter()
        .flat_map(|(_, object)| webhooks::clients(&object.0))
        .map(|(_, client)| client)
        .collect();
    let kind = api::resource("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices");
    let slices = api::list(&session.client, &kind, Some(&entry.namespace), Which::All).await?;
    let slices: Vec<Value> = slices.into_iter().map(|slice| slice.0).collect();
    let (mut missing, mut lead_to) = (0, String::new());
    for client in &clients {
        let (answered, place) = match (webhooks::service(client), webhooks::base(client)) {
            (Some(service), _) => {
                let place = format!("Service {}/{} has no endpoints", service.0, service.1);
                (clusterctl::is_served(&slices, &service), place)
            }
            (None, Some(base)) => match base.trim_start_matches("https://").parse() {
                Ok(address) => (is_answered(address).await, format!("nothing at {base}")),
                // A host name: what answers there is not ours to say.
                Err(_) => (true, String::new()),
            },
            (None, None) => (false, "they lead nowhere".to_owned()),
        };
        if !answered {
            missing += 1;
            lead_to = place;
        }
    }
    Ok(match (clients.is_empty(), missing) {
        (true, _) => Answers::NoWebhooks,
        (false, 0) => Answers::All,
        (false, missing) => Answers::Missing(missing, lead_to),
    })
}
