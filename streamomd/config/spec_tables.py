"""The tables of a job, and what follows from several of them: the data of a Spec."""

from __future__ import annotations

from pydantic import Field

from streamomd.config.data_table import Data
from streamomd.config.job_table import Table
from streamomd.config.model_table import Model
from streamomd.config.run_tables import Alert, Checkpoint, Cluster, Train, Update
from streamomd.losses import Loss, find_loss
from streamomd.rules import find_rule
from streamomd.rules.contract import Rule, Saved


class SpecTables(Table):
    """Each table valid by itself; ``Spec`` refuses those that contradict each other."""

    data: Data = Data()
    model: Model = Field(default_factory=lambda: Model.model_validate({}))
    train: Train = Train()
    checkpoint: Checkpoint = Checkpoint()
    cluster: Cluster = Cluster()
    update: Update = Update()
    alert: Alert = Alert()

    @property
    def rule(self) -> Rule:
        """The rule of the job with its loss, with its accounts if a certificate is wanted."""
        rule = find_rule(self.model.rule).for_loss(self.model.loss)
        if self.model.certificate:
            rule = rule.certificate.accounted or rule
        return rule.reduced_for(self.model.params)

    @property
    def refers_target(self) -> bool:
        """Whether a rule without a reference of its own learns the target in standard units."""
        return bool(self.model.scale_target) and self.rule.storage.kind != "block"

    @property
    def rounds_per_epoch(self) -> int:
        """Merges per epoch in averaged mode: the job's number, or what the rule needs."""
        return self.train.rounds_per_epoch or self.rule.storage.rounds

    @property
    def loss(self) -> Loss:
        """The loss of the job."""
        return find_loss(self.model.loss)

    def saved(self, version: int) -> Saved:
        """What a commit of this job records about its state."""
        model = self.model
        return Saved(version, self.data.weight != "", model.certificate, model.params)
