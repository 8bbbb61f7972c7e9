//! Values as the reference prints them in error texts: `%q` strings, `%v` numbers and compact JSON.

pub(crate) use remuda_base::quote::quoted as quote;
use serde_json::Value;

/// How a bad value appears after `Invalid value: `.
pub(crate) fn show(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Number(number) => match number.as_i64() {
            Some(int) => int.to_string(),
            None => float(number.as_f64().unwrap_or_default()),
        },
        other => json(other),
    }
}

/// A float as `%v` prints it: shortest digits, exponent form below 1e-4 and from 1e6 upwards.
pub(crate) fn float(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return if value.is_finite() { "0".to_owned() } else { value.to_string() };
    }
    let magnitude = value.abs();
    if (1e-4..1e6).contains(&magnitude) {
        return value.to_string();
    }
    let text = format!("{value:e}");
    let Some((digits, exponent)) = text.split_once('e') else { return text };
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(rest) => ('-', rest),
        None => ('+', exponent),
    };
    format!("{digits}e{sign}{exponent:0>2}")
}

/// Compact JSON with the HTML escapes Go's encoder applies.
pub(crate) fn json(value: &Value) -> String {
    let text = value.to_string();
    if !text.contains(['<', '>', '&']) {
        return text;
    }
    text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// The type a value has after decoding.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_print_as_in_go() {
        assert_eq!(show(&json!("a\"b\n\u{1}ü<")), r#""a\"b\n\x01ü<""#);
        assert_eq!(show(&json!({"b": 1, "a": "<x>"})), r#"{"a":"\u003cx\u003e","b":1}"#);
        assert_eq!(show(&json!(null)), "null");
        assert_eq!(show(&json!(-7)), "-7");
        for (value, text) in
            [(0.5, "0.5"), (3.0, "3"), (1e6, "1e+06"), (1.5e-7, "1.5e-07"), (123_456.0, "123456"), (0.0, "0")]
        {
            assert_eq!(float(value), text);
        }
    }
}
