//! Logs for machines: each line is one JSON object, and no key is there twice.
//!
//! Fields of an event and of the spans around it have names of their own choosing, so they can collide with those of the
//! line. What collides gets an underscore.

use std::{
    fmt::{self, Debug},
    sync::atomic::{AtomicBool, Ordering},
};

use serde_json::{Map, Value, json};
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    fmt::{
        FmtContext, FormattedFields,
        format::{FormatEvent, JsonFields, Writer},
        time::{FormatTime, SystemTime},
    },
    registry::{LookupSpan, Scope},
};

use crate::output;

/// Everything this process has to say is such a line.
static ALL: AtomicBool = AtomicBool::new(false);

/// From now on failures and panics are lines as well.
pub(super) fn take_over() {
    ALL.store(true, Ordering::Relaxed);
    std::panic::set_hook(Box::new(|panic| tracing::error!(panic = %panic, "a task panicked")));
}

pub(crate) fn is_on() -> bool {
    ALL.load(Ordering::Relaxed)
}

/// A line that no level suppresses.
pub(crate) fn note(message: &str, fields: &[(&str, &str)]) {
    let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), json!(value)));
    output::note(&line(Level::INFO, env!("CARGO_PKG_NAME"), message, fields.collect(), Vec::new()));
}

pub(super) struct Lines;

impl<S> FormatEvent<S, JsonFields> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, JsonFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let spans = context.event_scope().into_iter().flat_map(Scope::from_root);
        let spans = spans.map(|span| {
            let extensions = span.extensions();
            let formatted = extensions.get::<FormattedFields<JsonFields>>();
            // Read again, since a field that was recorded twice is there twice.
            let fields = formatted.and_then(|formatted| serde_json::from_str(&formatted.fields).ok());
            object(&[("span", json!(span.name()))], fields.unwrap_or_default())
        });
        let spans = spans.collect();
        let metadata = event.metadata();
        writeln!(
            writer,
            "{}",
            line(*metadata.level(), metadata.target(), &fields.message, fields.other, spans)
        )
    }
}

fn line(level: Level, target: &str, message: &str, fields: Map<String, Value>, spans: Vec<String>) -> String {
    let mut now = String::new();
    let _ = SystemTime.format_time(&mut Writer::new(&mut now));
    let fixed = [
        ("timestamp", json!(now)),
        ("level", json!(level.as_str())),
        ("message", json!(message)),
        ("target", json!(target)),
    ];
    let mut text = object(&fixed, fields);
    if !spans.is_empty() {
        text.pop();
        text.push_str(&format!(",\"spans\":[{}]}}", spans.join(",")));
    }
    text
}

/// An object with the fixed keys first, in their order.
fn object(fixed: &[(&str, Value)], fields: Map<String, Value>) -> String {
    let mut keys: Vec<String> = fixed.iter().map(|(key, _)| (*key).to_owned()).collect();
    keys.push("spans".to_owned());
    let mut members: Vec<String> =
        fixed.iter().map(|(key, value)| format!("{}:{value}", json!(key))).collect();
    for (mut key, value) in fields {
        while keys.contains(&key) {
            key.push('_');
        }
        members.push(format!("{}:{value}", json!(key)));
        keys.push(key);
    }
    format!("{{{}}}", members.join(","))
}

#[derive(Default)]
struct Fields {
    message: String,
    other: Map<String, Value>,
}

impl Fields {
    fn add(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(text)) => self.message = text,
            (name, value) => {
                // Raw identifiers are names too.
                self.other.insert(name.trim_start_matches("r#").to_owned(), value);
            }
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.add(field, json!(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, json!(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, json!(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, json!(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, json!(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, json!(value));
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{self, Write},
        sync::Arc,
    };

    use parking_lot::Mutex;

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn no_key_is_there_twice_whatever_fields_are_called() {
        let kept = Kept::default();
        let writer = kept.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .fmt_fields(JsonFields::new())
            .event_format(Lines)
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            let span =
                tracing::info_span!("reconcile", name = "demo", span = 1, late = tracing::field::Empty);
            span.record("late", 1);
            span.record("late", 2);
            let _entered = span.enter();
            tracing::info!(
                level = "x",
                target = "y",
                spans = 3,
                name = "n",
                count = 7_u64,
                "it \"says\"\nso"
            );
        });
        let text = String::from_utf8(kept.0.lock().clone()).unwrap();
        let (_, rest) = text.split_once("\"level\"").unwrap();
        assert_eq!(
            format!("\"level\"{rest}"),
            "\"level\":\"INFO\",\"message\":\"it \\\"says\\\"\\nso\",\"target\":\"remuda::log::json::tests\",\
             \"count\":7,\"level_\":\"x\",\"name\":\"n\",\"spans_\":3,\"target_\":\"y\",\
             \"spans\":[{\"span\":\"reconcile\",\"late\":2,\"name\":\"demo\",\"span_\":1}]}\n"
        );
    }
}
