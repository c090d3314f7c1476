//! The record of a cluster in its ledger, and what is left of it if that is gone: the copies on images.

use std::collections::{BTreeMap, BTreeSet};

use fair::Charge;
use shared::cloud::CloudErrorKind::{Invalid, Unavailable};
use shared::cloud::{CloudError, ClusterRef, Entry, LedgerError, Target};
use shared::record::{Format, RecordError};
use shared::text::sanitize_to;

use crate::cloud::{Attributes, Cloud, Image, ImageStatus, Server, keep, spend};
use crate::planner::{PassError, Planner};
use crate::record::{EntryCopy, Machine, REQUEST_LIFETIME, Record, is_within};
use crate::survey::Survey;

/// A record with its version; `None` if it is made of copies and not stored yet.
type VersionedRecord<A> = (Record<A>, Option<String>);

impl<C: Cloud> Planner<C> {
    /// The record, read anew.
    pub(crate) async fn recorded(
        &self,
        target: &Target,
        servers: &[Server<C::Attributes>],
        images: &[Image],
        held: &mut Charge,
    ) -> Result<Option<VersionedRecord<C::Attributes>>, CloudError> {
        let cluster = &target.cluster;
        let Some(Entry { text, version }) = target.ledger.read().await? else {
            return Ok(rebuilt(cluster, servers, images, held)?.map(|record| (record, None)));
        };
        spend(held, text.len())?;
        Ok(Some((self.record(cluster, &text, servers, images, held)?, Some(version))))
    }

    /// The record by its text, which may be another program's. Of an image that this one names, the copy says more. A
    /// machine whose server still lives, or lives again, is none of those that sleep.
    fn record(
        &self,
        cluster: &ClusterRef,
        text: &str,
        servers: &[Server<C::Attributes>],
        images: &[Image],
        held: &mut Charge,
    ) -> Result<Record<C::Attributes>, CloudError> {
        let record = match Record::read_charged(text, &mut |bytes| held.spend(bytes).is_ok()) {
            Ok(record) => record,
            Err(RecordError::NoRoom) => return Err(no_room()),
            Err(why) => {
                let imported = self.cloud().imported(cluster, text).ok_or_else(|| unreadable(&why.to_string()))?;
                let mut machines = keep(imported.map_err(|why| unreadable(&why))?, held)?;
                machines.retain(|name, _| !is_there(servers, name));
                for EntryCopy { name, machine, .. } in copies(images, held)? {
                    if let Some(entry) = machines.get_mut(&name).filter(|entry| entry.image == machine.image) {
                        *entry = machine;
                    }
                }
                Record { sealed: true, machines, ..Record::new(cluster) }
            }
        };
        if record.is_of(cluster) { Ok(record) } else { Err(unreadable("it is another cluster's")) }
    }

    /// The images of a record that another program has made.
    pub(crate) fn not_listed(&self, record: &Record<C::Attributes>, images: &[Image]) -> impl Iterator<Item = Image> {
        let listed: BTreeSet<&String> = images.iter().map(|image| &image.id).collect();
        let entries = record.machines.iter().filter(|(_, entry)| entry.given_up);
        entries.filter_map(move |(name, entry)| {
            let id = entry.image.as_ref().filter(|id| !listed.contains(id))?;
            Some(Image {
                id: id.clone(),
                server: id.clone(),
                machine: name.clone(),
                cycle: entry.cycle.clone(),
                status: self.cloud().image(id)?,
                is_tagged: false,
                copy: None,
            })
        })
    }

    /// Writes the record over the one that was read, if it differs. Returns its version.
    pub(crate) async fn write(
        &self,
        target: &Target,
        survey: &Survey<C::Attributes>,
        record: &Record<C::Attributes>,
    ) -> Result<String, PassError> {
        match &survey.record {
            Some((old, Some(version))) if old == record => Ok(version.clone()),
            old => self.store(target, record, old.as_ref().and_then(|(_, version)| version.as_deref())).await,
        }
    }

    pub(crate) async fn store(
        &self,
        target: &Target,
        record: &Record<C::Attributes>,
        seen: Option<&str>,
    ) -> Result<String, PassError> {
        let text = record.bounded_text().map_err(|why| unreadable(&why.to_string()))?;
        let export = Some(record).filter(|record| record.sealed).and_then(|record| self.cloud().exported(record));
        let export = export.filter(|export| text.len() + export.len() <= Record::<C::Attributes>::MAX_BYTES);
        match target.ledger.write(&text, export.as_deref(), seen).await {
            Ok(version) => Ok(version),
            Err(LedgerError::Conflict) => Err(PassError::Lost),
            Err(error) => Err(PassError::Failed(error.into())),
        }
    }
}

impl<A: Attributes> Survey<A> {
    /// What an awake cluster's record has to keep for a while: the servers of which a request may still arrive. A machine
    /// that is deleted from now on is not made again.
    pub fn moved_lately(&self) -> BTreeMap<String, Machine<A>> {
        let views = self.views();
        let lately = views.iter().filter_map(|view| {
            let entry = view.entry?;
            let mut attempts = [&entry.started, &entry.imaged].into_iter().flatten();
            let may_arrive = attempts.any(|attempt| is_within(self.now, attempt.at, REQUEST_LIFETIME));
            let entry = Machine { server: view.server(), image: None, given_up: false, ..entry.clone() };
            may_arrive.then(|| (view.name.to_owned(), entry))
        });
        lately.collect()
    }

    /// The record to change. A server that is gone or broke, and has its image, is given up.
    pub fn next_record(&self) -> Record<A> {
        let old = self.record.as_ref().map(|(record, _)| record.clone());
        let mut next = old.unwrap_or_else(|| Record::new(&self.cluster));
        for machine in next.machines.values_mut().filter(|machine| !machine.given_up) {
            let lives = self.servers.iter().any(|s| s.id == machine.server && !s.status.is_over());
            if let Some(image) = self.ready_image(machine).filter(|_| !lives) {
                *machine = Machine { image: Some(image.clone()), given_up: true, ..machine.clone() };
            }
        }
        next
    }

    /// A record with the entries of these machines as they were, if they differ.
    pub fn before(&self, mut record: Record<A>, machines: &[&str]) -> Option<Record<A>> {
        let (old, _) = self.record.as_ref()?;
        let mut differs = false;
        for name in machines {
            if let (Some(entry), Some(old)) = (record.machines.get_mut(*name), old.machines.get(*name))
                && (&entry.started, &entry.imaged) != (&old.started, &old.imaged)
            {
                differs = true;
                entry.clone_from(old);
            }
        }
        differs.then_some(record)
    }

    /// The record once every machine has its image: from then on they may be given up.
    pub fn sealed(&self, mut record: Record<A>) -> Record<A> {
        for machine in record.machines.values_mut().filter(|machine| !machine.given_up) {
            machine.image = self.ready_image(machine).cloned();
        }
        record.machines.retain(|_, machine| machine.image.is_some());
        Record { sealed: true, failed: None, stalled: None, ..record }
    }

    /// Whether all images that this sleep does not need were tried.
    pub fn is_cleaned(&self) -> bool {
        self.record.as_ref().is_some_and(|(record, _)| record.cleaned) || self.unneeded_images().next().is_none()
    }
}

/// Whether a machine has a server that is not on its way out.
fn is_there<A>(servers: &[Server<A>], name: &str) -> bool {
    servers.iter().any(|server| server.machine == name && !server.status.is_over())
}

/// The copies that images which are ready carry of themselves.
fn copies<A: Attributes>(images: &[Image], held: &mut Charge) -> Result<Vec<EntryCopy<A>>, CloudError> {
    let mut copies = Vec::new();
    for image in images.iter().filter(|image| matches!(image.status, ImageStatus::Active | ImageStatus::Withheld)) {
        let copy = image.copy.as_deref().unwrap_or_default();
        match EntryCopy::<A>::read_charged(copy, &mut |bytes| held.spend(bytes).is_ok()) {
            Ok(copy) if copy.machine.image.as_ref() == Some(&image.id) => copies.push(copy),
            Err(RecordError::NoRoom) => return Err(no_room()),
            _ => {}
        }
    }
    Ok(copies)
}

fn no_room() -> CloudError {
    CloudError::new(Unavailable, "there is no memory for the record of the cluster's machines")
}

/// The record by the copies on images, if a machine has only those: someone has deleted the record itself. A server that
/// still lives may have run since, so that its copy says nothing.
fn rebuilt<A: Attributes>(
    cluster: &ClusterRef,
    servers: &[Server<A>],
    images: &[Image],
    held: &mut Charge,
) -> Result<Option<Record<A>>, CloudError> {
    let is_there = |name: &str| is_there(servers, name);
    let mut copies = copies(images, held)?;
    copies.retain(|copy| !is_there(&copy.name));
    if let Some(of) = EntryCopy::elsewhere(&copies, cluster).filter(|_| servers.is_empty()) {
        let message = format!(
            "RecordElsewhere: the images of {} carry the record of ClusterDeployment {of}, which has put the machines to sleep: \
             nothing is touched. A ClusterDeployment of that namespace and name, with this infraID, adopts them and wakes",
            cluster.infra_id
        );
        return Err(CloudError::new(Invalid, sanitize_to(&message, 600)));
    }
    Record::of_copies(cluster, copies, is_there).map_err(|missing| {
        let message = format!(
            "RecordMissing: the record of the cluster's machines is gone, and no image has a copy of the entry of {}: \
             nothing is touched. Restore the Secret from a backup",
            shared::text::list(&missing)
        );
        CloudError::new(Invalid, message)
    })
}

fn unreadable(why: &str) -> CloudError {
    CloudError::new(Invalid, format!("the record of the cluster's machines is refused: {why}"))
}
