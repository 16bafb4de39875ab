//! What a run leaves: a table, a JSON file, figures, a page.

pub(crate) mod data;
pub(crate) mod figure;
pub(crate) mod html;
pub(crate) mod machine;
