//! Questions to the engine about its store, and the answers. Both travel as JSON, in a `cache` and a `report` frame.
//!
//! A question names its store. An engine that keeps another store refuses, and changes nothing.

use std::path::{Path, PathBuf};

use serde_json::{json, Value};

use super::explanation::Explanation;
use super::statistics::Statistics;
use crate::bytes::path_text;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    pub store: PathBuf,
    pub request: Request,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    Statistics,
    /// Starts the counts anew.
    Zero,
    Clear,
    /// Removes entries that were not used for this many seconds.
    Evict {
        seconds: u64,
    },
    /// Brings the store within its limits, and removes blobs without an entry.
    CleanUp,
    /// Tells the engine the new value of a setting.
    Set {
        name: String,
        value: String,
    },
    /// Asks why the last request for this output hit or missed. Without an output, asks about the last few requests.
    Explain {
        output: Option<String>,
    },
}

impl Question {
    pub fn encode(&self) -> Result<Vec<u8>, String> {
        let (name, detail) = match &self.request {
            Request::Statistics => ("statistics", Value::Null),
            Request::Zero => ("zero", Value::Null),
            Request::Clear => ("clear", Value::Null),
            Request::Evict { seconds } => ("evict", json!({ "seconds": seconds })),
            Request::CleanUp => ("clean up", Value::Null),
            Request::Set { name, value } => ("set", json!({ "name": name, "value": value })),
            Request::Explain { output } => ("explain", json!({ "output": output })),
        };
        let mut whole = json!({"store": path_text::show(&self.store), "wish": name, "detail": detail});
        if let Some(exact) = path_text::exact(&self.store) {
            whole["store_bytes"] = exact.into();
        }
        Ok(whole.to_string().into_bytes())
    }

    pub fn decode(bytes: &[u8]) -> Result<Question, String> {
        let whole: Value = serde_json::from_slice(bytes).map_err(|e| format!("not JSON: {e}"))?;
        let detail = &whole["detail"];
        let request = match text(&whole, "wish")?.as_str() {
            "statistics" => Request::Statistics,
            "zero" => Request::Zero,
            "clear" => Request::Clear,
            "evict" => Request::Evict {
                seconds: number(detail, "seconds")?,
            },
            "clean up" => Request::CleanUp,
            "set" => Request::Set {
                name: text(detail, "name")?,
                value: text(detail, "value")?,
            },
            "explain" => Request::Explain {
                output: match &detail["output"] {
                    Value::Null => None,
                    _ => Some(text(detail, "output")?),
                },
            },
            other => return Err(format!("this engine does not know the wish {other:?}")),
        };
        let store = match whole["store_bytes"].as_str() {
            Some(exact) => path_text::read_exact(exact).ok_or("store_bytes are no hexadecimal digits")?,
            None => Path::new(&text(&whole, "store")?).to_owned(),
        };
        Ok(Question { store, request })
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    Statistics(Box<Statistics>),
    Removed {
        entries: u64,
        bytes: u64,
    },
    Done,
    /// One for each output that is known.
    Explanations(Vec<Explanation>),
    /// The reason, and what to do.
    Refusal(String),
}

impl Answer {
    pub fn encode(&self) -> Vec<u8> {
        let (name, detail) = match self {
            Answer::Statistics(statistics) => ("statistics", statistics.json()),
            Answer::Removed { entries, bytes } => ("removed", json!({ "entries": entries, "bytes": bytes })),
            Answer::Done => ("done", Value::Null),
            Answer::Explanations(all) => {
                let all: Vec<_> = all.iter().map(Explanation::json).collect();
                ("explanations", json!(all))
            }
            Answer::Refusal(why) => ("refusal", json!(why)),
        };
        json!({ "answer": name, "detail": detail }).to_string().into_bytes()
    }

    pub fn decode(whole: &Value) -> Result<Answer, String> {
        let detail = &whole["detail"];
        Ok(match text(whole, "answer")?.as_str() {
            "statistics" => Answer::Statistics(Box::new(Statistics::from_json(detail)?)),
            "removed" => Answer::Removed {
                entries: number(detail, "entries")?,
                bytes: number(detail, "bytes")?,
            },
            "done" => Answer::Done,
            "explanations" => {
                let all = detail.as_array().ok_or("explanations that are no list")?;
                Answer::Explanations(all.iter().map(Explanation::from_json).collect::<Result<_, _>>()?)
            }
            "refusal" => Answer::Refusal(detail.as_str().unwrap_or("for no reason").to_owned()),
            other => return Err(format!("an answer of the unknown kind {other:?}")),
        })
    }
}

fn text(value: &Value, name: &str) -> Result<String, String> {
    let text = value[name].as_str();
    text.map(str::to_owned).ok_or_else(|| format!("{name} is not a text"))
}

pub(super) fn number(value: &Value, name: &str) -> Result<u64, String> {
    value[name].as_u64().ok_or_else(|| format!("{name} is not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_decoded_as_it_was_encoded() {
        let text = || "max_size".to_owned();
        for request in [
            Request::Statistics,
            Request::Zero,
            Request::Clear,
            Request::Evict { seconds: 7 },
            Request::CleanUp,
            Request::Set {
                name: text(),
                value: "5G".to_owned(),
            },
            Request::Explain {
                output: Some("/a.o".to_owned()),
            },
            Request::Explain { output: None },
        ] {
            let question = Question {
                store: "/store".into(),
                request,
            };
            assert_eq!(Question::decode(&question.encode().unwrap()), Ok(question));
        }
    }

    #[test]
    fn an_invalid_question_is_an_error() {
        for text in [
            "",
            "{",
            "[]",
            "{}",
            r#"{"store": "/s", "wish": "fly"}"#,
            r#"{"store": "/s", "wish": "evict", "detail": {"seconds": -1}}"#,
            r#"{"wish": "clear"}"#,
        ] {
            assert!(Question::decode(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn an_answer_is_decoded_as_it_was_encoded() {
        for answer in [
            Answer::Statistics(Box::default()),
            Answer::Removed { entries: 1, bytes: 2 },
            Answer::Done,
            Answer::Explanations(vec![Explanation::default()]),
            Answer::Refusal("no".to_owned()),
        ] {
            let value = serde_json::from_slice(&answer.encode()).unwrap();
            assert_eq!(Answer::decode(&value), Ok(answer));
        }
        assert!(Answer::decode(&json!({"answer": "removed"})).is_err());
        assert!(Answer::decode(&Value::Null).is_err());
    }
}
