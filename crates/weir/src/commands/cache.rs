//! `weir cache ls` and `weir cache rm`.

use std::fmt::Write;

use weir_gateway::state::ObjectStatus;

use super::text::{bytes, percent, span};
use crate::api;
use crate::cli::{ApiArgs, RemoveArgs};
use crate::exit::{Code, Failure, Outcome, print};

pub(crate) fn list(args: &ApiArgs) -> Outcome {
    let (json, objects) = api::get::<Vec<ObjectStatus>>(args.api, "/api/v1/objects")?;
    if args.json {
        return print(&format!("{}\n", json.trim_end()));
    }
    let mut out = String::new();
    for object in &objects {
        let share =
            object.size_bytes.map_or_else(|| "-".to_owned(), |n| percent(object.held_bytes, n));
        let (held, idle) = (bytes(object.held_bytes), span(object.idle_seconds));
        writeln!(out, "{}  {held:>10}  {share:>7}  {idle:>12}  {}", object.id, object.name)
            .expect("writing to a string does not fail");
    }
    print(&out)
}

pub(crate) fn remove(args: &RemoveArgs) -> Outcome {
    if args.id.len() != 32 || !args.id.bytes().all(|b| b.is_ascii_hexdigit()) {
        let error = format!("{:?} is no object id: 32 hexadecimal digits", args.id);
        return Err(Failure::new(Code::Usage, error).hint("`weir cache ls` shows them"));
    }
    if api::delete(args.api, &format!("/api/v1/objects/{}", args.id))? {
        Ok(())
    } else {
        Err(Failure::new(Code::Failed, format!("there is no object {}", args.id)))
    }
}
