"""Which streams a usage report is about."""

from __future__ import annotations

from collections.abc import Mapping

from turnlog.ledger.rollups import Facts, RollupTx, Where
from turnlog.usage.buckets import Kind


class Wanted:
    """Which streams a report is about."""

    def __init__(
        self,
        tx: RollupTx,
        *,
        provider: str | None,
        session: str | None,
        wave: str | None,
        project: str | None,
        task: str | None,
        beside: Mapping[str, Facts] | None = None,
    ) -> None:
        self._tx = tx
        self._beside = dict(beside or {})
        self._facts: dict[str, Facts] | None = None
        self._provider = provider
        self.session = session
        self._waves = None if wave is None else tx.named_waves(wave)
        self._tasks = None if task is None else tx.named_tasks(task=task)
        self._project = project
        self._planned = None if project is None else tx.named_tasks(project=project)
        self.everything = (provider, session, wave, project, task) == (None,) * 5
        self.scoped = (session, wave, project, task) != (None,) * 4
        self.by_work = (wave, task) != (None, None)

    @property
    def facts(self) -> dict[str, Facts]:
        """What is known of sessions, by their id."""
        if self._facts is None:
            self._facts = {each.session: each for each in self._tx.facts(self.session)} | self._beside
        return self._facts

    def kind(self, kind: Kind) -> bool:
        """Tell whether streams of a kind are wanted, as far as that depends on the kind alone."""
        return (
            self._provider in {None, kind.provider}
            and (self._waves is None or kind.wave in self._waves)
            and (self._tasks is None or kind.task in self._tasks)
        )

    def planned(self, kind: Kind) -> bool:
        """Tell whether a kind belongs to the planning project asked for."""
        return self._planned is not None and kind.task in self._planned

    def in_session(self, session: str) -> bool:
        """Tell whether a session is wanted, as far as that depends on the session alone."""
        if self.session is not None and session != self.session:
            return False
        if self._project is None:
            return True
        facts = self.facts.get(session)
        place = None if facts is None or facts.project is None else facts.project.rstrip("/")
        return place is not None and self._project.rstrip("/") in {place, place.rpartition("/")[2]}

    def admits(self, session: str, kind: Kind) -> bool:
        """Tell whether streams of a kind in a session are wanted."""
        return self.kind(kind) and (
            self.in_session(session) or (self.session in {None, session} and self.planned(kind))
        )

    def of_provider(self, name: str | None) -> bool:
        """Tell whether a provider is wanted."""
        return self._provider in {None, name}

    def where(self, since: int, until: int, kinds: dict[int, Kind], without: tuple[int, ...] | None) -> Where:
        """Return the filter for the ledger's sums."""
        if self.everything:
            return Where(since=since, until=until, without=without)
        sessions = None
        instead: tuple[int, ...] = ()
        if self.session is not None or self._project is not None:
            sessions = tuple(
                each.number for each in self.facts.values() if each.number is not None and self.in_session(each.session)
            )
        if self._planned is not None and self.session is None:
            instead = tuple(number for number, kind in kinds.items() if self.planned(kind))
        return Where(
            since=since,
            until=until,
            kinds=tuple(number for number, kind in kinds.items() if self.kind(kind)),
            sessions=sessions,
            instead=instead,
            without=without,
        )
