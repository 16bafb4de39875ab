//! `weir cache ls`, `weir cache show` and `weir cache rm`.

use std::fmt::Write;
use std::net::SocketAddr;

use weir_gateway::state::ObjectStatus;

use super::text::{bytes, percent, plain, span};
use crate::api;
use crate::cli::{ApiArgs, RemoveArgs, ShowArgs};
use crate::exit::{Code, Failure, Outcome, print};

/// Digits of a whole id.
const ID_LEN: usize = 32;

/// Digits that are enough of one: few enough to type, too many for a slip of a key.
const ID_LEN_MIN: usize = 4;

/// Objects that the API lists at once.
const LIST_MAX: usize = 10_000;

pub(crate) fn list(args: &ApiArgs) -> Outcome {
    let (json, objects) = api::get::<Vec<ObjectStatus>>(args.api, "/api/v1/objects")?;
    if args.json {
        return print(&format!("{}\n", json.trim_end()));
    }
    let mut out = String::new();
    for object in &objects {
        let (held, share) = (bytes(object.held_bytes), share(object));
        let (idle, name) = (span(object.idle_seconds), plain(&object.name));
        writeln!(out, "{}  {held:>10}  {share:>7}  {idle:>12}  {name}", object.id)
            .expect("writing to a string does not fail");
    }
    print(&out)
}

pub(crate) fn show(args: &ShowArgs) -> Outcome {
    let ApiArgs { api, json: as_json } = args.api;
    let id = whole_id(api, &args.id)?;
    let found = api::find::<ObjectStatus>(api, &format!("/api/v1/objects/{id}"))?;
    let (json, object) = found.ok_or_else(|| no_object(&id))?;
    if as_json { print(&format!("{}\n", json.trim_end())) } else { print(&described(&object)) }
}

pub(crate) fn remove(args: &RemoveArgs) -> Outcome {
    let id = whole_id(args.api, &args.id)?;
    if api::delete(args.api, &format!("/api/v1/objects/{id}"))? {
        Ok(())
    } else {
        Err(no_object(&id))
    }
}

/// One object, a line for each thing there is to say of it.
fn described(object: &ObjectStatus) -> String {
    let size = object.size_bytes.map_or_else(|| "unknown".to_owned(), bytes);
    let rows = [
        ("id", object.id.clone()),
        ("name", plain(&object.name)),
        ("app", plain(&object.app)),
        ("size", size),
        ("held", format!("{} ({})", bytes(object.held_bytes), share(object))),
        ("segments", object.segments.to_string()),
        ("idle", span(object.idle_seconds)),
    ];
    rows.map(|(name, value)| format!("{name:<12}{value}\n")).concat()
}

/// How much of it is held; a dash when nobody knows how much there is.
fn share(object: &ObjectStatus) -> String {
    object.size_bytes.map_or_else(|| "-".to_owned(), |size| percent(object.held_bytes, size))
}

/// The id that `given` is, or with which the id of one object held begins.
fn whole_id(api: SocketAddr, given: &str) -> Result<String, Failure> {
    let is_id = (ID_LEN_MIN..=ID_LEN).contains(&given.len())
        && given.bytes().all(|b| b.is_ascii_hexdigit());
    if !is_id {
        let error = format!(
            "{given:?} is no object id: {ID_LEN_MIN} to {ID_LEN} hexadecimal digits, of which \
             {ID_LEN} are a whole one"
        );
        return Err(Failure::new(Code::Usage, error).hint("`weir cache ls` shows them"));
    }
    let given = given.to_ascii_lowercase();
    if given.len() == ID_LEN {
        return Ok(given);
    }
    let path = format!("/api/v1/objects?limit={LIST_MAX}");
    let (_, objects) = api::get::<Vec<ObjectStatus>>(api, &path)?;
    if objects.len() >= LIST_MAX {
        // Another one that begins so may be among those that are not listed.
        let error = format!("{LIST_MAX} objects or more are held, too many to look {given} up in");
        return Err(Failure::new(Code::Failed, error).hint("write the whole id"));
    }
    let ids: Vec<_> =
        objects.into_iter().map(|o| o.id).filter(|id| id.starts_with(&given)).collect();
    match <[String; 1]>::try_from(ids) {
        Ok([id]) => Ok(id),
        Err(ids) if ids.is_empty() => Err(no_object(&given)),
        Err(ids) => {
            let error = format!("{} objects have ids that begin with {given}", ids.len());
            Err(Failure::new(Code::Failed, error).hint("write more of it"))
        }
    }
}

fn no_object(id: &str) -> Failure {
    Failure::new(Code::Failed, format!("there is no object {id}"))
        .hint("`weir cache ls` shows those there are")
}
