"""EC2's instance state machine on top of moto.

Stock moto moves instances at once, revives terminated ones, stops one-time spot instances and pages by reservation.
`install` replaces those methods of moto's classes with ones that do what EC2 does:

* transitions take time, each kind with its own setting;
* a batch is checked as a whole before anything moves, and the refusal names the first instance in the way;
* `IncorrectInstanceState`, stop and termination protection, one-time spot requests, malformed IDs;
* `LaunchTime` is renewed by every start, and `StateReason` says why an instance stopped;
* an instance may stop again after each accepted start, with a `StateReason` of its own (`stops_again`), as one whose key of KMS may not be used;
* `DescribeInstances` pages by instance, and refuses filters that it does not know or that have too many values;
* filters on tags compare whole values, with `*` and `?`, and take 200 of them quickly;
* `DescribeSpotInstanceRequests` knows the requests of the instances that there are.
"""

from __future__ import annotations

import base64
import binascii
import copy
import datetime
import functools
import re
import threading
import time

from moto.core.responses import ActionResult
from moto.core.utils import utcnow
from moto.ec2 import utils as ec2_utils
from moto.ec2.exceptions import EC2ClientError, InvalidInstanceIdError, OperationNotPermitted4
from moto.ec2.models.core import TaggedEC2Resource
from moto.ec2.models.instances import Instance, InstanceBackend, InstanceState, Reservation, StateReason
from moto.ec2.responses.instances import InstanceResponse
from moto.ec2.responses.spot_instances import SpotInstances

STATE_CODES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80}
INSTANCE_ID = re.compile(r"i-(?:[0-9a-f]{8}|[0-9a-f]{17})")

# Seconds that each transition takes, the most instances that one page holds, and whether calls are limited. All settable while running.
SETTINGS = {"start": 2.0, "stop": 2.0, "terminate": 2.0, "page_limit": 1000, "limits": 1, "shift": 0}

# moto is not made for threads: whoever reads or changes its state holds this.
LOCK = threading.RLock()

_by_id: dict[tuple[str, str], dict[str, Instance]] = {}
_original = {name: getattr(Instance, name) for name in ("start", "stop", "terminate")}
_original_run = InstanceBackend.run_instances
_original_run_response = InstanceResponse.run_instances
_request = threading.local()


def shifted() -> datetime.datetime:
    """Now, by the clock of launch times."""
    return utcnow() + datetime.timedelta(seconds=SETTINGS["shift"])


def set_state(instance: Instance, name: str, since: float | None = None) -> InstanceState:
    """Puts an instance into a state at once and ends any transition that was under way. Answers the state before."""
    previous = instance._state
    instance._state = InstanceState(name, STATE_CODES[name])
    instance.state_since = time.time() if since is None else since
    return copy.copy(previous)


def _transition(instance: Instance, during: str, final: str, kind: str) -> InstanceState:
    previous = set_state(instance, during)
    if kind == "start":
        instance.launch_time = shifted()
    token = instance._state

    def finish() -> None:
        with LOCK:
            if instance._state is not token:
                return  # another transition took over
            why = getattr(instance, "stops_again", None) if kind == "start" else None
            _original["stop" if why else kind](instance)
            if why:
                instance.state_reason = StateReason(why, why.split(":")[0])
            set_state(instance, "stopped" if why else final)

    if SETTINGS[kind] <= 0:
        finish()
    else:
        timer = threading.Timer(SETTINGS[kind], finish)
        timer.daemon = True
        timer.start()
    return previous


def start(instance: Instance) -> InstanceState:
    return _transition(instance, "pending", "running", "start")


def stop(instance: Instance) -> InstanceState:
    return _transition(instance, "stopping", "stopped", "stop")


def terminate(instance: Instance) -> InstanceState:
    return _transition(instance, "shutting-down", "terminated", "terminate")


# What EC2 refuses, per instance.


def _wrong_state(instance: Instance, verb: str) -> EC2ClientError:
    message = f"The instance '{instance.id}' is not in a state from which it can be {verb}."
    return EC2ClientError("IncorrectInstanceState", message)


def _may_start(instance: Instance) -> None:
    if instance.state in ("stopping", "shutting-down", "terminated"):
        raise _wrong_state(instance, "started")


def _may_stop(instance: Instance) -> None:
    if instance.state in ("pending", "shutting-down", "terminated"):
        raise _wrong_state(instance, "stopped")
    if str(instance.disable_api_stop).lower() == "true":
        raise EC2ClientError(
            "OperationNotPermitted",
            f"The instance '{instance.id}' may not be stopped. "
            "Modify its 'disableApiStop' instance attribute and try again.",
        )
    if instance.lifecycle == "spot" and instance.spot_type == "one-time":
        raise EC2ClientError(
            "UnsupportedOperation",
            f"You can't stop the Spot Instance '{instance.id}' because it is associated with a one-time Spot Instance "
            "request. You can only stop Spot Instances associated with persistent Spot Instance requests.",
        )


def _may_terminate(instance: Instance) -> None:
    if str(instance.disable_api_termination).lower() == "true":
        raise OperationNotPermitted4(instance.id)


def _check_ids(ids: list[str]) -> None:
    for instance_id in ids:
        if not INSTANCE_ID.fullmatch(instance_id):
            raise EC2ClientError("InvalidInstanceID.Malformed", f'Invalid id: "{instance_id}"')


def _move_all(backend, ids, may, moving_from, move):
    """Checks the whole batch, then moves it; an instance that is there already stays as it is."""
    if not ids:
        raise EC2ClientError("MissingParameter", "The request must contain the parameter InstanceId")
    _check_ids(ids)
    instances = backend.get_multi_instances_by_id(ids)
    for instance in instances:
        may(instance)
    return [(i, move(i) if i.state in moving_from else copy.copy(i._state)) for i in instances]


def _start_instances(backend, ids):
    return _move_all(backend, ids, _may_start, ("stopped",), start)


def _stop_instances(backend, ids):
    return _move_all(backend, ids, _may_stop, ("running",), stop)


def _terminate_instances(backend, ids):
    return _move_all(backend, ids, _may_terminate, ("pending", "running", "stopping", "stopped"), terminate)


def _moved(key: str, method: str):
    """The response with the states as they are, where stock moto prints constants."""

    def respond(self: InstanceResponse) -> ActionResult:
        self.error_on_dryrun()
        moved = getattr(self.ec2_backend, method)(self._get_param("InstanceIds", []))
        rows = [{"InstanceId": i.id, "CurrentState": i._state, "PreviousState": before} for i, before in moved]
        return ActionResult({key: rows})

    return respond


# Running and describing.


def _remember_spot_type(self: InstanceResponse) -> ActionResult:
    _request.spot_type = self._get_param("InstanceMarketOptions.SpotOptions.SpotInstanceType")
    return _original_run_response(self)


def _run_instances(backend, *args, **kwargs):
    reservation = _original_run(backend, *args, **kwargs)
    for instance in reservation.instances:
        instance.spot_type = getattr(_request, "spot_type", None) or "one-time"
        if instance.lifecycle == "spot":
            instance.spot_instance_request_id = "sir-" + instance.id[-8:]
        _transition(instance, "pending", "running", "start")
        _by_id.setdefault((backend.account_id, backend.region_name), {})[instance.id] = instance
    return reservation


def _instances_by_id(backend, instance_ids, filters=None):
    known = _by_id.get((backend.account_id, backend.region_name), {})
    missing = [instance_id for instance_id in instance_ids if instance_id not in known]
    if missing:
        raise InvalidInstanceIdError(missing)
    found = [known[instance_id] for instance_id in dict.fromkeys(instance_ids)]
    return [instance for instance in found if instance.applies(filters)] if filters else found


def _token(position: int) -> str:
    return base64.b64encode(f"page:{position}".encode()).decode()


def _position(token: str | None) -> int:
    if not token:
        return 0
    try:
        return int(base64.b64decode(token, validate=True).decode().removeprefix("page:"))
    except (binascii.Error, ValueError):
        raise EC2ClientError("InvalidNextToken", "The token is not valid") from None


# Filters.

MOST_VALUES = 200
UNESCAPED = re.compile(r"\\(.)|([*?])")


@functools.lru_cache(maxsize=64)
def _pattern(values: tuple[str, ...]) -> tuple[frozenset[str], re.Pattern | None]:
    """Values without wildcards as a set, because there may be many; the others as one expression."""
    plain, wild = set(), []
    for value in values:
        wildcard, expression, end = False, "", 0
        for found in UNESCAPED.finditer(value):
            expression += re.escape(value[end : found.start()])
            expression += re.escape(found[1]) if found[1] else {"*": ".*", "?": "."}[found[2]]
            wildcard, end = wildcard or bool(found[2]), found.end()
        expression += re.escape(value[end:])
        if wildcard:
            wild.append(expression)
        else:
            plain.add(re.sub(r"\\(.)", r"\1", value))
    return frozenset(plain), re.compile("|".join(wild)) if wild else None


def _tag_filter_matches(resource, name: str, values: list[str]) -> bool:
    tags = {tag["key"]: tag["value"] for tag in resource.get_tags()}
    if name == "tag-key":
        found = list(tags)
    elif name == "tag-value":
        found = list(tags.values())
    else:
        found = [tags[name[4:]]] if name[4:] in tags else []
    plain, wild = _pattern(tuple(values))
    return any(text in plain or (wild is not None and wild.fullmatch(text)) for text in found)


def _check_filters(filters: dict[str, list[str]]) -> None:
    if sum(len(values) for values in filters.values()) > MOST_VALUES:
        raise EC2ClientError("FilterLimitExceeded", "The maximum number of filter values specified on a single call is 200")


def _describe_spot_instance_requests(self: SpotInstances) -> ActionResult:
    self.error_on_dryrun()
    filters = self._filters_from_querystring()
    _check_filters(filters)
    for name in filters:
        if name != "spot-instance-request-id":
            raise EC2ClientError("InvalidParameterValue", f"The filter '{name}' is invalid")
    known = _by_id.get((self.ec2_backend.account_id, self.ec2_backend.region_name), {}).values()
    requests = {i.spot_instance_request_id: i for i in known if i.lifecycle == "spot"}
    ids = self._get_param("SpotInstanceRequestIds", [])
    for request in ids:
        if request not in requests:
            message = f"The spot instance request ID '{request}' does not exist"
            raise EC2ClientError("InvalidSpotInstanceRequestID.NotFound", message)
    wanted = set(ids or requests) & set(filters.get("spot-instance-request-id", requests))
    rows = [
        {"SpotInstanceRequestId": request, "InstanceId": i.id, "Type": i.spot_type, "State": "active"}
        for request, i in requests.items()
        if request in wanted
    ]
    return ActionResult({"SpotInstanceRequests": rows})


def _describe_instances(self: InstanceResponse) -> ActionResult:
    self.error_on_dryrun()
    ids, size = self._get_param("InstanceIds", []), self._get_param("MaxResults")
    if ids and size is not None:
        message = "The parameter instancesSet cannot be used with the parameter maxResults"
        raise EC2ClientError("InvalidParameterCombination", message)
    if size is not None and not 5 <= int(size) <= 1000:
        message = f"Value ( {size} ) for parameter maxResults is invalid. Expecting a value between 5 and 1000."
        raise EC2ClientError("InvalidParameterValue", message)
    _check_ids(ids)
    wanted = {instance.id for instance in _instances_by_id(self.ec2_backend, ids)} if ids else None
    filters = self._filters_from_querystring()
    _check_filters(filters)
    try:
        reservations = self.ec2_backend.describe_instances(filters=filters)
    except NotImplementedError as error:
        name = re.search(r"'([^']+)'", str(error))
        message = f"The filter '{name.group(1) if name else '?'}' is invalid"
        raise EC2ClientError("InvalidParameterValue", message) from None
    rows = [(r, i) for r in reservations for i in r.instances if wanted is None or i.id in wanted]
    first = _position(self._get_param("NextToken"))
    # Named instances come in one answer, whatever their number.
    last = len(rows) if ids else first + min(int(size or 1000), int(SETTINGS["page_limit"]))
    token = _token(last) if last < len(rows) else None
    return _Described(rows[first:last], token)


class _Described(ActionResult):
    """moto takes 3 ms to write down one instance, so what it wrote is kept until that instance changes."""

    SET = re.compile("<reservationSet>(.*)</reservationSet>", re.DOTALL)

    def __init__(self, rows: list[tuple[Reservation, Instance]], token: str | None) -> None:
        super().__init__({"Reservations": [], "NextToken": token})
        self.rows = rows

    def execute_result(self, context):
        status, headers, body = super().execute_result(context)
        assert body.count("<reservationSet/>") == 1, body
        items = "".join(self._item(context, reservation, instance) for reservation, instance in self.rows)
        return status, headers, body.replace("<reservationSet/>", f"<reservationSet>{items}</reservationSet>")

    def _item(self, context, reservation: Reservation, instance: Instance) -> str:
        # A state is a new object each time. Nothing but this changes here.
        now = (instance._state, instance.launch_time, instance.instance_type, instance.get_tags())
        then, item = getattr(instance, "written", (None, ""))
        if then is None or then[0] is not now[0] or then[1:] != now[1:]:
            part = copy.copy(reservation)
            part.instances = [instance]
            item = self.SET.search(ActionResult({"Reservations": [part]}).execute_result(context)[2])[1]
            instance.written = (now, item)
        return item


def _tags(resource: TaggedEC2Resource) -> list[dict[str, str]]:
    if not resource.id:
        return []
    kind = ec2_utils.EC2_PREFIX_TO_RESOURCE.get(ec2_utils.get_prefix(resource.id), "")
    tags = resource.ec2_backend.tags.get(resource.id, {})
    return [{"resource_id": resource.id, "key": k, "value": v, "resource_type": kind} for k, v in list(tags.items())]


def install() -> None:
    """Puts the methods of this module into moto's classes."""
    ec2_utils.filter_dict_attribute_mapping["instance-lifecycle"] = "lifecycle"
    ec2_utils.tag_filter_matches = _tag_filter_matches  # moto's takes a value for the beginning of another
    TaggedEC2Resource.get_tags = _tags  # moto looks at every tag of the account for each instance
    Instance.start, Instance.stop, Instance.terminate = start, stop, terminate
    InstanceBackend.run_instances = _run_instances
    InstanceBackend.get_multi_instances_by_id = _instances_by_id
    InstanceBackend.start_instances = _start_instances
    InstanceBackend.stop_instances = _stop_instances
    InstanceBackend.terminate_instances = _terminate_instances
    InstanceResponse.run_instances = _remember_spot_type
    InstanceResponse.describe_instances = _describe_instances
    SpotInstances.describe_spot_instance_requests = _describe_spot_instance_requests
    InstanceResponse.start_instances = _moved("StartingInstances", "start_instances")
    InstanceResponse.stop_instances = _moved("StoppingInstances", "stop_instances")
    InstanceResponse.terminate_instances = _moved("TerminatingInstances", "terminate_instances")
