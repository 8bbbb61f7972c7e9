//! Requests and their answers as data: see `tests/corpus/README.md`.

use serde_json::Value;

use crate::harness::*;

/// What differs from run to run.
fn normalised(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let entry = |(key, value): (String, Value)| match key.as_str() {
                "managedFields" => None,
                "uid" | "resourceVersion" | "creationTimestamp" if !value.is_null() => {
                    Some((key, Value::from("*")))
                }
                "message" => Some((key, without_version(value))),
                _ => Some((key, normalised(value))),
            };
            Value::Object(map.into_iter().filter_map(entry).collect())
        }
        Value::Array(items) => items.into_iter().map(normalised).collect(),
        other => other,
    }
}

fn without_version(message: Value) -> Value {
    let mark = "current: ";
    match message.as_str().and_then(|text| text.split_once(mark)) {
        Some((before, after)) => {
            format!("{before}{mark}*{}", after.trim_start_matches(|c: char| c.is_ascii_digit())).into()
        }
        None => message,
    }
}

/// Where a body lacks what it should have.
fn lack(body: &Value, wanted: &Value, path: &str) -> Option<String> {
    match (body, wanted) {
        (Value::Object(body), Value::Object(wanted)) => wanted.iter().find_map(|(key, wanted)| {
            lack(body.get(key).unwrap_or(&Value::Null), wanted, &format!("{path}.{key}"))
        }),
        (Value::Array(body), Value::Array(wanted)) if body.len() == wanted.len() => body
            .iter()
            .zip(wanted)
            .enumerate()
            .find_map(|(index, (body, wanted))| lack(body, wanted, &format!("{path}[{index}]"))),
        _ if body == wanted => None,
        _ => Some(format!("{path} is {body}, not {wanted}")),
    }
}

async fn ask(server: &Server, step: &Value) -> Answer {
    let (method, path) = step["ask"].as_str().and_then(|ask| ask.split_once(' ')).expect("method and path");
    let server = match step["as"].as_str() {
        Some(user) => server.by(somebody(user)),
        None => server.clone(),
    };
    let mut ask = server.ask(method, path);
    if let Some(accept) = step["accept"].as_str() {
        ask = ask.accept(accept);
    }
    for (name, value) in step["headers"].as_object().into_iter().flatten() {
        ask = ask.header(name, value.as_str().expect("headers are texts"));
    }
    if let Some(body) = step.get("body") {
        let text = body.as_str().map_or_else(|| body.to_string(), str::to_owned);
        ask = ask.body(step["type"].as_str().unwrap_or(JSON), text);
    }
    ask.send().await
}

/// What is wrong with an answer.
fn judge(answer: &Answer, step: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    if step["code"] != answer.code {
        wrong.push(format!("code {}, not {}", answer.code, step["code"]));
    }
    let body = normalised(answer.body.clone());
    if let Some(whole) = step.get("is").filter(|whole| **whole != body) {
        wrong.push(format!("body {body}, not {whole}"));
    }
    wrong.extend(step.get("has").and_then(|wanted| lack(&body, wanted, "body")));
    let text = || answer.text();
    if let Some(whole) = step["text"].as_str().filter(|whole| *whole != text()) {
        wrong.push(format!("text {:?}, not {whole:?}", text()));
    }
    for part in step["contains"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !text().contains(part) {
            wrong.push(format!("{part:?} is not in {:?}", text().chars().take(2000).collect::<String>()));
        }
    }
    for (name, value) in step["header"].as_object().into_iter().flatten() {
        if answer.header(name) != value.as_str() {
            wrong.push(format!("header {name} is {:?}, not {value}", answer.header(name)));
        }
    }
    if let Some(texts) = step["warns"].as_array() {
        let wanted: Vec<String> = texts.iter().map(|text| format!("299 - {text}")).collect();
        if answer.warnings() != wanted {
            wrong.push(format!("warnings {:?}, not {wanted:?}", answer.warnings()));
        }
    }
    wrong
}

#[tokio::test]
async fn every_recorded_request_has_its_recorded_answer() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    let mut wrong = Vec::new();
    let mut asked = 0;
    for file in &files {
        let scenarios: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        for scenario in scenarios.as_array().unwrap() {
            let server = Server::quiet().await;
            for step in scenario["steps"].as_array().unwrap() {
                asked += 1;
                let answer = ask(&server, step).await;
                let place = format!("{}: {}: {}", file.display(), scenario["about"], step["ask"]);
                wrong.extend(judge(&answer, step).into_iter().map(|what| format!("{place}: {what}")));
            }
        }
    }
    assert!(asked > 50, "{asked} requests in {files:?}");
    assert!(wrong.is_empty(), "{} of {asked}:\n{}", wrong.len(), wrong.join("\n"));
}
