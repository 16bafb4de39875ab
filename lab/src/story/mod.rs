//! The stories: what is shown, under which conditions, what would refute it.
//!
//! A story builds its network, runs programs in it, and writes rows, series and
//! checks into its record. It says nothing about cleaning up, because guards and
//! the supervisor do that whatever happens.

mod bystanders;
mod clients;
mod corruption;
mod index;
mod inference;
mod instruments;
mod policies;
mod storage;
mod swarm;

pub(crate) use inference::record_requests;

use std::path::PathBuf;

use anyhow::Result;

use crate::record::data::Record;

/// What a story is given.
#[derive(Clone, Debug)]
pub(crate) struct Conditions {
    /// Decides content, losses and places.
    pub(crate) seed: u64,
    /// Shorter, for tests.
    pub(crate) quick: bool,
    /// The gateway's binary.
    pub(crate) weir: PathBuf,
    /// A directory of this run's own, removed at its end.
    pub(crate) work: PathBuf,
}

/// A story.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Story {
    /// As it is called on the command line.
    pub(crate) name: &'static str,
    /// What it shows, one line.
    pub(crate) about: &'static str,
    run: fn(&Conditions, &mut Record) -> Result<()>,
}

impl Story {
    /// Every story, in the order of a report.
    pub(crate) const ALL: [Self; 8] = [
        Self {
            name: "lab/instruments",
            about: "the emulated link and every client over plain forwarding, no gateway",
            run: instruments::run,
        },
        Self {
            name: "pcache/clients",
            about: "real BitTorrent clients without and with the cache",
            run: clients::run,
        },
        Self {
            name: "pcache/bystanders",
            about: "traffic that is not ours, and 500 adoptions at once",
            run: bystanders::run,
        },
        Self {
            name: "pcache/corruption",
            about: "a corrupted store and a killed gateway never give a wrong byte",
            run: corruption::run,
        },
        Self {
            name: "pcache/inference",
            about: "piece length from request streams: the paper's Figure 9",
            run: inference::run,
        },
        Self {
            name: "pcache/policies",
            about: "byte hit ratio by policy, size and popularity: traces and a day of the web",
            run: policies::run,
        },
        Self {
            name: "pcache/index",
            about: "memory and look-up of the store's index, to a hundred million segments",
            run: index::run,
        },
        Self {
            name: "pcache/storage",
            about: "layouts on disk under one trace: the paper's Figures 6, 7 and 8",
            run: storage::run,
        },
    ];

    /// The story of that name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|story| story.name == name)
    }

    /// Runs the story; an error becomes a failed check of its record.
    pub(crate) fn run(self, conditions: &Conditions) -> Record {
        let mut record = Record::new(self.name, conditions.seed, conditions.quick);
        eprintln!("weir-lab: {}: {}", self.name, self.about);
        let start = crate::clock::now();
        let end = (self.run)(conditions, &mut record);
        record.secs = start.elapsed().as_secs_f64();
        let error = end.err().map(|error| format!("{error:#}"));
        let found = error.clone().unwrap_or_default();
        record.holds("the story ran to its end", error.is_none(), found);
        record
    }
}
