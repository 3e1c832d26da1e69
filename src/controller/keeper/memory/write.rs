//! The writes of the status: conditions, metrics and Events go along with them.

use super::{Confirmed, Memory};
use crate::controller::keeper::context::Context;
use crate::kube::Action;
use crate::kube::error::{Cause, Error};
use crate::monitor::CONFIG_MONITORS;
use crate::monitor::report::{NOT_STORED, report, report_request};
use crate::monitor::situation::Situation;
use crate::monitor::status::Status;

impl Memory {
    /// Writes the intent to delete pods, which were listed before. If the spec has been edited, the write conflicts.
    pub(crate) async fn intend(
        &mut self,
        context: &Context,
        status: Status,
        situation: &Situation<'_>,
    ) -> Result<(Status, Confirmed), Error> {
        let (status, unstored) = self.write(context, status, situation).await?;
        // Pods would be deleted twice or too early.
        let Some(before) = unstored else { return Ok((status, Confirmed { generation: self.generation() })) };
        if status.restart.is_some() {
            self.update_status(context, before, situation).await?;
        }
        Err(not_written(context, Cause::Invalid(NOT_STORED.to_owned())))
    }

    /// Sets the conditions, writes the status if it has changed, and publishes the notice. Returns the stored status.
    pub(crate) async fn update_status(
        &mut self,
        context: &Context,
        status: Status,
        situation: &Situation<'_>,
    ) -> Result<Status, Error> {
        self.write(context, status, situation).await.map(|(stored, _)| stored)
    }

    /// Returns the stored status, and the one before if the journals or the restart were not stored as they were sent.
    async fn write(
        &mut self,
        context: &Context,
        mut status: Status,
        situation: &Situation<'_>,
    ) -> Result<(Status, Option<Status>), Error> {
        // The record is put back once the write has succeeded: if it fails, the outcome is unknown. Without a record,
        // the conflict makes the keeper read it again.
        let Some(mut record) = self.record.take() else {
            let cause = Cause::Conflict("the ConfigMonitor must be read first".to_owned());
            return Err(not_written(context, cause));
        };
        let notice = report(situation, &mut status, record.generation, context.client.server_now());
        if record.request.as_ref().is_some_and(|request| !status.has_handled(request)) {
            report_request(&mut status);
        }
        let mut unstored = None;
        // An annotation that changes all the time costs one write for each look: edits during a look collapse.
        if status != record.status {
            let ended = status.ended_since(&record.status).cloned();
            let (stored, before, is_stored) = record.replace_status(context, status).await?;
            record = stored;
            unstored = Some(before).filter(|_| !is_stored);
            if let Some(ended) = ended {
                context.tally.restart_over(ended.result.into(), ended.completed_at.since(ended.started_at));
            }
        }
        context.publish(notice.as_slice(), &self.uids()).await;
        Ok((self.record.insert(record).status.clone(), unstored))
    }
}

fn not_written(context: &Context, cause: Cause) -> Error {
    Action::on("update", CONFIG_MONITORS, &context.name).of("status").failed(cause)
}
