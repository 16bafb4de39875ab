//! Running stories and showing what came of them: tables, figures, the page.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;

use crate::record::data::Record;
use crate::story::{Conditions, Story};
use crate::{record, supervisor};

/// What every command that runs a story takes.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Decides content, losses and places.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Writes figures here.
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
    /// Shortens the story; such a run is not quoted.
    #[arg(long)]
    pub(crate) quick: bool,
    /// The gateway; by default the `weir` beside this program.
    #[arg(long)]
    pub(crate) weir: Option<PathBuf>,
}

/// Runs every story into one directory and writes the page.
///
/// # Errors
/// When a file cannot be written.
pub(crate) fn report(options: &Options, work: &Path) -> Result<ExitCode> {
    let dir = options.out.clone().unwrap_or_else(|| PathBuf::from("lab-report"));
    let options = Options { out: Some(dir.clone()), weir: options.weir.clone(), ..*options };
    let mut told = Vec::new();
    for story in Story::ALL {
        let (record, figures) = tell(story, &options, &work.join(story.name.replace('/', "-")))?;
        record.write_json(&dir.join(format!("{}.json", story.name.replace('/', "-"))))?;
        told.push((record, figures));
    }
    record::html::write(&dir, &told)?;
    eprintln!("weir-lab: the page is {}", dir.join("index.html").display());
    Ok(verdict(&told.iter().map(|(record, _)| record).collect::<Vec<_>>()))
}

/// Runs a story, prints its table, draws its figures.
///
/// # Errors
/// When a figure or the story's directory cannot be written.
pub(crate) fn tell(story: Story, options: &Options, work: &Path) -> Result<(Record, Vec<String>)> {
    supervisor::begin_inner()?;
    fs::create_dir_all(work)?;
    let record = story.run(&conditions(options, work)?);
    fs::remove_dir_all(work).context("remove the story's files")?;
    fs::create_dir_all(work)?;
    let mut figures = Vec::new();
    if let Some(dir) = &options.out {
        fs::create_dir_all(dir).with_context(|| format!("make {}", dir.display()))?;
        for figure in &record.figures {
            figures.push(figure.draw(dir)?);
        }
    }
    write!(io::stdout().lock(), "{} (seed {})\n{}", record.story, record.seed, record.table())?;
    Ok((record, figures))
}

/// What a story is given.
///
/// # Errors
/// When this program's own path is unknown.
pub(crate) fn conditions(options: &Options, work: &Path) -> Result<Conditions> {
    let weir = match &options.weir {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.with_file_name("weir"),
    };
    Ok(Conditions { seed: options.seed, quick: options.quick, weir, work: work.to_path_buf() })
}

/// 0 when every check of every record holds.
pub(crate) fn verdict(records: &[&Record]) -> ExitCode {
    if records.iter().all(|record| record.is_good()) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
