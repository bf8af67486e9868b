"""The manifests are what the Dask operator's own definitions take, and keep to their network."""

from __future__ import annotations

import functools
import tomllib
from typing import Any

import pytest
import yaml
from deploying import DEPLOY, documents, shipped
from jsonschema import Draft202012Validator
from kubernetes import client

from streamomd.cli import main
from streamomd.config.spec import Spec
from streamomd.integrations.serve.http_app import OPEN
from streamomd.integrations.serve.request_rows import VARIABLE
from streamomd.integrations.serve.run_server import GRACE_SECONDS

FOLDER = DEPLOY / "kubernetes"
DASK = {"cluster.yaml": "DaskCluster", "job.yaml": "DaskJob"}
ALONE = {"update.yaml": "CronJob", "follow.yaml": "Deployment"}
SERVED = {"serve.yaml": "Deployment"}
PART = ("app.kubernetes.io/part-of", "streamomd")


def one(name: str, kind: str) -> Any:
    """The document of a kind in a file."""
    (found,) = [each for each in documents(FOLDER / name) if each["kind"] == kind]
    return found


@functools.cache
def definition(kind: str) -> Any:
    """The schema that dask-kubernetes ships for a kind; a field it does not name is refused."""
    for file in shipped("dask-kubernetes", ".yaml"):
        if file.parent.name != "crds":
            continue
        for found in yaml.load_all(file.read_text(), yaml.CSafeLoader):
            if found and found["spec"]["names"]["kind"] == kind:
                return closed(found["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    raise AssertionError(f"dask-kubernetes defines no {kind}")


def closed(schema: Any) -> Any:
    """Kubernetes drops fields that are not in the schema: here they are mistakes."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: closed(value) for key, value in schema.items()}
    if isinstance(made.get("properties"), dict) and "additionalProperties" not in made:
        made["additionalProperties"] = made.get("x-kubernetes-preserve-unknown-fields", False)
    if made.get("x-kubernetes-int-or-string"):
        made.pop("type", None)
    return made


def whole(schema: Any) -> Any:
    """A definition with what every object may have."""
    every = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {}}
    return {**schema, "properties": {**schema["properties"], **every}}


def pods(document: Any) -> dict[str, Any]:
    """The pod of each role of a DaskCluster or DaskJob."""
    spec = document["spec"]
    cluster = spec["cluster"]["spec"] if "cluster" in spec else spec
    found = {role: cluster[role]["spec"] for role in ("scheduler", "worker")}
    return found | ({"job": spec["job"]["spec"]} if "job" in spec else {})


def pods_of(name: str) -> dict[str, Any]:
    """The pods of a file's cluster, CronJob or Deployment, by role."""
    if name in DASK:
        return pods(one(name, DASK[name]))
    spec = one(name, (ALONE | SERVED)[name])["spec"]
    spec = spec["jobTemplate"]["spec"] if "jobTemplate" in spec else spec
    return {"alone": spec["template"]["spec"]}


CASES = [(name, role) for name in (*DASK, *ALONE, *SERVED) for role in pods_of(name)]


@pytest.mark.parametrize("name", DASK)
def test_the_operator_takes_a_manifest(name: str) -> None:
    """Against the definition in dask-kubernetes, strictly."""
    errors = Draft202012Validator(whole(definition(DASK[name]))).iter_errors(one(name, DASK[name]))
    assert [f"{error.json_path}: {error.message}" for error in errors] == []


def test_the_validation_sees_a_wrong_field() -> None:
    """A misspelt field deep in a pod, and a number where a text belongs."""
    document = one("job.yaml", "DaskJob")
    container = pods(document)["worker"]["containers"][0]
    container["recources"] = container.pop("resources")
    container["args"][-1] = 8788
    errors = Draft202012Validator(whole(definition("DaskJob"))).iter_errors(document)
    assert len(list(errors)) == 2


@pytest.mark.filterwarnings("ignore")  # the operator's own libraries
def test_what_the_operator_makes_of_the_job() -> None:
    """Its own functions: the runner finds the scheduler, and the policy is about every pod."""
    from dask_kubernetes.operator.controller import controller

    document = one("job.yaml", "DaskJob")
    name, labels = document["metadata"]["name"], document["metadata"]["labels"]
    roles = pods(document)
    service = controller.build_scheduler_service_spec(name, {}, {}, labels)["metadata"]["name"]
    made = {
        "job": controller.build_job_pod_spec(name, name, "spaces", roles["job"], {}, labels),
        "worker": controller.build_worker_deployment_spec(
            f"{name}-default", "spaces", name, "1", roles["worker"], {}, labels
        )["spec"]["template"],
        "scheduler": controller.build_scheduler_deployment_spec(
            name, roles["scheduler"], {}, labels
        )["spec"]["template"],
    }
    assert {pod["metadata"]["labels"][PART[0]] for pod in made.values()} == {PART[1]}
    for role, wanted in (("job", "DASK_SCHEDULER_ADDRESS"), ("worker", "DASK_WORKER_NAME")):
        (container,) = made[role]["spec"]["containers"]
        given = {variable["name"]: variable["value"] for variable in container["env"]}
        assert f"$({wanted})" in container["args"]
        assert given[wanted]
        assert given["DASK_SCHEDULER_ADDRESS"].startswith(f"tcp://{service}.spaces.svc.")


def misnamed(model: str, given: Any, where: str) -> list[str]:
    """Fields that one of Kubernetes's own kinds does not have, or that are of another shape."""
    if model.startswith("list["):
        if not isinstance(given, list):
            return [f"{where}: not a list"]
        inner = model[5:-1]
        return [bad for i, one in enumerate(given) for bad in misnamed(inner, one, f"{where}[{i}]")]
    kind = getattr(client, model, None)
    if kind is None:
        return []
    named = {kind.attribute_map[field]: type_ for field, type_ in kind.openapi_types.items()}
    bad = [f"{where}.{key}" for key in given if key not in named]
    known = [key for key in given if key in named]
    return bad + [b for key in known for b in misnamed(named[key], given[key], f"{where}.{key}")]


@pytest.mark.parametrize(
    ("name", "kind", "model"),
    [
        ("network.yaml", "NetworkPolicy", "V1NetworkPolicy"),
        ("network.yaml", "ServiceAccount", "V1ServiceAccount"),
        ("job.yaml", "ConfigMap", "V1ConfigMap"),
        ("update.yaml", "CronJob", "V1CronJob"),
        ("follow.yaml", "Deployment", "V1Deployment"),
        ("serve.yaml", "Deployment", "V1Deployment"),
        ("serve.yaml", "Service", "V1Service"),
        ("serve.yaml", "NetworkPolicy", "V1NetworkPolicy"),
    ],
)
def test_kubernetes_knows_every_field(name: str, kind: str, model: str) -> None:
    """Of its own kinds, by the models of its client; and a wrong one is seen."""
    document = one(name, kind)
    assert misnamed(model, document, kind) == []
    document["metadata"]["lables"] = {}
    assert misnamed(model, document, kind) == [f"{kind}.metadata.lables"]


@pytest.mark.parametrize(("name", "role"), CASES)
def test_a_pod_has_no_rights(name: str, role: str) -> None:
    """What the restricted pod security standard asks for, and no token of the cluster's."""
    pod = pods_of(name)[role]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = pod["containers"]
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["image"].partition(":")[2] not in ("", "latest")
    assert "memory" in container["resources"]["limits"]


@pytest.mark.parametrize(("name", "role"), CASES)
def test_credentials_come_from_a_secret(name: str, role: str) -> None:
    """Of those who read and write, not the scheduler; nothing secret stands in a manifest."""
    (container,) = pods_of(name)[role]["containers"]
    given = [source["secretRef"]["name"] for source in container.get("envFrom", ())]
    assert given == ([] if role == "scheduler" else ["streamomd-storage"])
    for variable in container.get("env", ()):
        assert [*variable] == ["name", "valueFrom"]
        assert [*variable["valueFrom"]] == ["secretKeyRef"]


@pytest.mark.parametrize("name", DASK)
def test_the_scheduler_is_reached_by_those_who_must(name: str) -> None:
    """Its service is the cluster's own, and the network policy is about all of its pods."""
    document = one(name, DASK[name])
    spec = document["spec"]
    service = (spec["cluster"]["spec"] if "cluster" in spec else spec)["scheduler"]["service"]
    assert service["type"] == "ClusterIP"
    assert service["selector"]["dask.org/cluster-name"] == document["metadata"]["name"]
    assert document["metadata"]["labels"] == dict([PART])
    policy = one("network.yaml", "NetworkPolicy")["spec"]
    assert policy["podSelector"] == {"matchLabels": dict([PART])}
    among, operator, prometheus = policy["ingress"]
    (scraper,) = prometheus["from"]
    assert {*scraper} == {"namespaceSelector", "podSelector"}
    (metrics,) = pods_of("follow.yaml")["alone"]["containers"][0]["ports"]
    assert prometheus["ports"] == [{"protocol": "TCP", "port": metrics["containerPort"]}]
    assert among["from"] == [{"podSelector": {"matchLabels": dict([PART])}}]
    assert {port["port"] for port in operator["ports"]} == {
        port["port"] for port in service["ports"]
    }


@pytest.mark.parametrize("name", DASK)
def test_a_worker_may_use_all_of_its_memory(name: str) -> None:
    """Dask gives a worker the part of the memory that its threads are of the processors."""
    (container,) = pods(one(name, DASK[name]))["worker"]["containers"]
    threads = container["args"][container["args"].index("--nthreads") + 1]
    assert threads == container["resources"]["limits"]["cpu"]


def test_the_job_of_the_manifest_is_one() -> None:
    """Its TOML is a job, where the runner looks for it, and its URL is no part of it."""
    held = one("job.yaml", "ConfigMap")
    Spec.parse(tomllib.loads(held["data"]["job.toml"]))
    pod = pods(one("job.yaml", "DaskJob"))["job"]
    (mount,) = pod["containers"][0]["volumeMounts"]
    assert pod["volumes"][0]["configMap"]["name"] == held["metadata"]["name"]
    assert pod["containers"][0]["args"][1] == f"{mount['mountPath']}/job.toml"


@pytest.mark.parametrize("name", ALONE)
def test_a_run_that_is_updated_has_one_writer(name: str) -> None:
    """No second pod starts before the first has ended, and a pod has time to commit."""
    document = one(name, ALONE[name])
    spec = document["spec"]
    if name == "update.yaml":
        assert spec["concurrencyPolicy"] == "Forbid"
        template = spec["jobTemplate"]["spec"]["template"]
    else:
        assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
        template = spec["template"]
        labels = template["metadata"]["labels"]
        assert spec["selector"]["matchLabels"].items() <= labels.items()
    assert (
        template["metadata"]["labels"][PART[0]]
        == PART[1]
        == document["metadata"]["labels"][PART[0]]
    )
    assert template["spec"]["terminationGracePeriodSeconds"] >= 60


@pytest.mark.parametrize("name", [*ALONE, *SERVED])
def test_the_command_of_a_pod_is_one(name: str) -> None:
    """Its flags are those of the command, and its URL is that of the manifests' run."""
    (container,) = pods_of(name)["alone"]["containers"]
    program, verb, url, *flags = container["args"]
    assert (program, verb, url) == (
        "streamomd",
        name.removesuffix(".yaml"),
        "s3://my-bucket/runs/bank",
    )
    with main.commands[verb].make_context(verb, [url, *flags]) as context:
        assert context.params["url"] == url


def test_a_follow_is_watched() -> None:
    """Its probes and Prometheus look where it serves metrics, on an address that they reach; no
    probe looks for a file."""
    (container,) = pods_of("follow.yaml")["alone"]["containers"]
    arguments = container["args"]
    (port,) = container["ports"]
    assert arguments[arguments.index("--metrics-port") + 1] == str(port["containerPort"])
    assert arguments[arguments.index("--metrics-host") + 1] == "0.0.0.0"
    for probe in ("startupProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/metrics", "port": port["name"]}


def test_a_server_is_reached_with_a_token_only() -> None:
    """The token is a secret's; the server listens where the service and the probes look."""
    (container,) = pods_of("serve.yaml")["alone"]["containers"]
    (variable,) = container["env"]
    assert variable["name"] == VARIABLE
    (port,) = container["ports"]
    arguments = container["args"]
    assert arguments[arguments.index("--port") + 1] == str(port["containerPort"])
    assert arguments[arguments.index("--host") + 1] == "0.0.0.0"
    for probe, path in (
        ("startup", "/healthz"),
        ("liveness", "/healthz"),
        ("readiness", "/readyz"),
    ):
        assert container[f"{probe}Probe"]["httpGet"] == {"path": path, "port": port["name"]}
        assert path in OPEN
    service = one("serve.yaml", "Service")["spec"]
    assert service["ports"][0]["targetPort"] == port["name"]
    document = one("serve.yaml", "Deployment")["spec"]
    labels = document["template"]["metadata"]["labels"]
    assert service["selector"] == document["selector"]["matchLabels"]
    assert service["selector"].items() <= labels.items()
    policy = one("serve.yaml", "NetworkPolicy")["spec"]
    assert policy["podSelector"]["matchLabels"] == service["selector"]
    assert policy["ingress"] == [{"ports": [{"protocol": "TCP", "port": port["containerPort"]}]}]


def test_a_server_is_not_in_the_network_of_a_run() -> None:
    """Whoever breaks it reaches no Dask scheduler."""
    labels = one("serve.yaml", "Deployment")["spec"]["template"]["metadata"]["labels"]
    policy = one("network.yaml", "NetworkPolicy")["spec"]["podSelector"]["matchLabels"]
    assert not policy.items() <= labels.items()


def test_a_server_has_time_to_answer() -> None:
    """What is under way when the pod is stopped."""
    seconds = pods_of("serve.yaml")["alone"]["terminationGracePeriodSeconds"]
    assert seconds > GRACE_SECONDS
