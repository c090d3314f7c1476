"""OpenStack's own services for the test world: keystone, placement, glance, neutron and nova with a hypervisor that is fake.

    python openstack_world.py init TEMPLATE              a template: databases, keys, catalog (20 s, once)
    python openstack_world.py clone TEMPLATE FOLDER P1 P2 P3 P4 P5 [Q1 Q2 Q3 Q4 Q5]
                                                   a world of it on free ports of 127.0.0.1, in the order of SERVICES (0.1 s);
                                                   clients find the second five, such as proxies, in the catalog
    python openstack_world.py serve FOLDER SERVICE       runs one service in the foreground; nova last, it needs the catalog

The services are unmodified; what they lack on one machine is replaced in their processes only: message bus and hypervisor (Nova's own
fakes), volumes (Nova's CinderFixture), network agents (ports bind at once). FOLDER/knobs.json sets, at any time:
{"spawn_s": 5, "snapshot_s": 20, "snapshot_fails": true}.
"""

import io
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
import types
import urllib.error
import urllib.request
import uuid
from pathlib import Path

SERVICES = ["keystone", "placement", "glance", "neutron", "nova"]
CATALOG = {"nova": "compute", "glance": "image", "placement": "placement", "neutron": "network"}
FIRST_PORTS = [35357, 8778, 9292, 9696, 8774]  # of a template; a clone has its own
PASTE = ["glance/glance-api-paste.ini", "neutron/api-paste.ini", "nova/api-paste.ini"]


def auth(ports, name="admin"):
    """Credentials of `admin`, or of `demo`, a member of a project of that name."""
    return {
        "auth_type": "password",
        "auth_url": f"http://127.0.0.1:{ports['keystone']}/v3",
        "username": name,
        "password": "secret",
        "project_name": name,
        "user_domain_id": "default",
        "project_domain_id": "default",
        "region_name": "R1",
    }


def settings(folder, ports):
    """Each service's file, as sections."""
    login = auth(ports)

    def database(name):
        return {"connection": f"sqlite:///{folder}/{name}.db?timeout=60"}

    def default(name, **more):
        return {"DEFAULT": {"log_file": f"{folder}/log/{name}.log", **more}}

    def store(name):
        return {"filesystem_store_datadir": f"{folder}/{name}"}

    checked = {
        "keystone_authtoken": {**login, "www_authenticate_uri": login["auth_url"].removesuffix("/v3")},
        "oslo_concurrency": {"lock_path": f"{folder}/lock"},
    }
    neutron = {
        "core_plugin": "ml2",
        "service_plugins": "router",
        "transport_url": "fake:///",
        "api_paste_config": f"{folder}/etc/neutron/api-paste.ini",
        "state_path": folder,
        "notify_nova_on_port_status_changes": "false",
        "notify_nova_on_port_data_changes": "false",
    }
    ml2 = {"type_drivers": "local", "tenant_network_types": "local", "mechanism_drivers": "logger", "extension_drivers": "port_security"}
    nova = {
        "host": "aio",
        "my_ip": "127.0.0.1",
        "service_down_time": 99999999,
        "compute_driver": "fake.FakeDriver",
        "transport_url": "fake:///",
        "instances_path": f"{folder}/instances",
        "state_path": folder,
    }
    filters = "ComputeFilter,ComputeCapabilitiesFilter,ImagePropertiesFilter,ServerGroupAntiAffinityFilter,ServerGroupAffinityFilter"
    return {
        "keystone/keystone.conf": {
            **default("keystone"),
            "database": database("keystone"),
            "fernet_tokens": {"key_repository": f"{folder}/fernet"},
            "credential": {"key_repository": f"{folder}/credential"},
        },
        "placement/placement.conf": {**default("placement"), "placement_database": database("placement"), **checked},
        "glance/glance-api.conf": {
            **default("glance", enabled_backends="fs:file", node_staging_uri=f"file://{folder}/staging"),
            "glance_store": {"default_backend": "fs"},
            "fs": store("images"),
            "os_glance_staging_store": store("staging"),
            "os_glance_tasks_store": store("tasks"),
            "database": database("glance"),
            "paste_deploy": {"flavor": "keystone", "config_file": f"{folder}/etc/glance/glance-api-paste.ini"},
            **checked,
        },
        "neutron/neutron.conf": {
            **default("neutron", **neutron),
            "database": database("neutron"),
            "ml2": ml2,
            "quotas": {"quota_port": -1},
            **checked,
        },
        "nova/nova.conf": {
            **default("nova", **nova),
            "api_database": database("nova_api"),
            "database": database("nova_cell1"),
            **{service: login for service in ("placement", "neutron", "cinder", "keystone")},
            # Past the proxies but for Glance: what it refuses to Nova is a fault, too.
            "glance": {**login, "valid_interfaces": "public"},
            # Without it neutron lets nova delete no port that nova has made.
            "service_user": {**login, "send_service_user_token": "true"},
            **checked,
            "quota": {"instances": -1, "cores": -1, "ram": -1},
            "vnc": {"enabled": "false"},
            "filter_scheduler": {"enabled_filters": filters},
        },
    }


def write_settings(folder, ports):
    for name, sections in settings(folder, ports).items():
        path = folder / "etc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = (f"[{name}]\n" + "".join(f"{key}={value}\n" for key, value in fields.items()) for name, fields in sections.items())
        path.write_text("".join(lines))
    for name in PASTE:
        shutil.copy(Path(sys.prefix) / "etc" / name, folder / "etc" / name)
    (folder / "ports.json").write_text(json.dumps(ports))


def init(folder):
    """Makes a template. Names and ports in it are those of the template; a clone replaces them."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in ["log", "fernet", "credential", "images", "staging", "tasks", "instances", "lock"]:
        (folder / name).mkdir(parents=True, mode=0o700)
    ports = dict(zip(SERVICES, FIRST_PORTS))
    write_settings(folder, ports)

    def run(tool, name, *arguments):
        command = [f"{sys.prefix}/bin/{tool}", "--config-file", f"{folder}/etc/{name}", *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    keystone = ("keystone-manage", "keystone/keystone.conf")
    me = ("--keystone-user", str(os.getuid()), "--keystone-group", str(os.getgid()))
    run(*keystone, "db_sync")
    run(*keystone, "fernet_setup", *me)
    run(*keystone, "credential_setup", *me)
    urls = [word for kind in ("public", "internal", "admin") for word in (f"--bootstrap-{kind}-url", auth(ports)["auth_url"])]
    run(*keystone, "bootstrap", "--bootstrap-password", "secret", "--bootstrap-region-id", "R1", *urls)
    run("placement-manage", "placement/placement.conf", "db", "sync")
    run("glance-manage", "glance/glance-api.conf", "db_sync")
    nova = ("nova-manage", "nova/nova.conf")
    run(*nova, "api_db", "sync")
    run(*nova, "cell_v2", "map_cell0", "--database_connection", f"sqlite:///{folder}/nova_cell0.db?timeout=60")
    run(*nova, "db", "sync")
    run(*nova, "cell_v2", "create_cell", "--name", "cell1")
    # Neutron's migrations do not run on SQLite: its tables are made as they are in the end.
    import sqlalchemy
    from neutron.db.migration.models import head

    head.get_metadata().create_all(sqlalchemy.create_engine(f"sqlite:///{folder}/neutron.db"))
    for path in folder.glob("*.db"):
        sqlite3.connect(path).execute("PRAGMA journal_mode=WAL")
    (folder / "compute_id").write_text(str(uuid.uuid4()))
    # Free ports only: another process may make a template at the same time.
    server = subprocess.Popen([sys.executable, __file__, "serve", str(folder), "keystone", "0"], stdout=subprocess.PIPE, text=True)
    try:
        fill_catalog({**ports, "keystone": int(server.stdout.readline())}, ports)
    finally:
        server.kill()
        server.wait()


def fill_catalog(at, ports):
    import openstack

    identity = openstack.connect(**auth(at), identity_endpoint_override=auth(at)["auth_url"]).identity
    role = identity.find_role("service") or identity.create_role(name="service")
    identity.assign_project_role_to_user(identity.find_project("admin"), identity.find_user("admin"), role)
    project = identity.create_project(name="demo", domain_id="default")
    user = identity.create_user(name="demo", password="secret", domain_id="default")
    identity.assign_project_role_to_user(project, user, identity.find_role("member"))
    for name, kind in CATALOG.items():
        service = identity.create_service(name=name, type=kind)
        url = f"http://127.0.0.1:{ports[name]}" + ("/v2.1" if name == "nova" else "")
        for interface in ("public", "internal", "admin"):
            identity.create_endpoint(service_id=service.id, interface=interface, url=url, region_id="R1")


def clone(template, folder, *ports):
    """A world of its own: another folder, other ports, the same compute node."""
    shutil.copytree(template, folder, dirs_exist_ok=True)
    old = json.loads((template / "ports.json").read_text())
    ports = list(map(int, ports))
    own, public = ports[: len(SERVICES)], ports[-len(SERVICES) :]
    write_settings(folder, dict(zip(SERVICES, own, strict=True)))
    with sqlite3.connect(folder / "keystone.db") as keystone:
        change = "update endpoint set url = replace(url, ?, ?) where (interface = 'public') = ?"
        for at, name in enumerate(SERVICES):
            for is_public, port in ((False, own[at]), (True, public[at])):
                keystone.execute(change, (f":{old[name]}", f":{port}", is_public))
    with sqlite3.connect(folder / "nova_api.db") as nova:
        change = "update cell_mappings set database_connection = replace(database_connection, ?, ?)"
        nova.execute(change, (str(template), str(folder)))


def serve(folder, service, port=None):
    import waitress

    ports = json.loads((folder / "ports.json").read_text())
    for name in SERVICES:
        os.environ[f"OS_{name.upper()}_CONFIG_DIR"] = f"{folder}/etc/{name}"
    os.environ.update(OS_GLANCE_CONFIG_FILES="glance-api.conf", OS_NEUTRON_CONFIG_FILES="neutron.conf", OS_NOVA_DISABLE_EVENTLET_PATCHING="1")
    sys.argv = [service]
    lock_at_begin()
    if service == "neutron":
        bind_ports_at_once()
    app = nova(folder) if service == "nova" else __import__(f"{service}.wsgi.api", fromlist=["application"]).application
    server = waitress.create_server(app, host="127.0.0.1", port=int(port if port is not None else ports[service]), threads=8)
    if port is not None:
        print(server.effective_port, flush=True)
    server.run()


def lock_at_begin():
    """SQLite refuses at once to make a read lock a write lock, however long the time-out: every transaction begins with the latter."""
    import oslo_db.sqlalchemy.engines
    import sqlalchemy

    class Immediate:
        def __getattr__(self, name):
            return getattr(sqlalchemy, name)

        def text(self, query):
            return sqlalchemy.text("BEGIN IMMEDIATE" if query == "BEGIN" else query)

    oslo_db.sqlalchemy.engines.sqlalchemy = Immediate()


def bind_ports_at_once():
    import sqlalchemy.orm
    from neutron.db.migration.models import head  # noqa: F401 (all models, before the first request)
    from neutron.tests.unit.plugins.ml2.drivers import mechanism_logger

    def bind_port(self, context):
        context.set_binding(context.segments_to_bind[0]["id"], "ovs", {"port_filter": True}, status="ACTIVE")

    mechanism_logger.LoggerMechanismDriver.bind_port = bind_port
    sqlalchemy.orm.configure_mappers()


def nova(folder):
    """Conductor, scheduler, compute and API in one process, over a message bus in memory."""
    sys.argv += ["--config-file", f"{folder}/etc/nova/nova.conf"]
    from nova import monkey_patch

    monkey_patch.patch(backend="threading")
    from oslo_service import backend

    backend.init_backend(backend.BackendType.THREADING)
    import nova.conf
    import os_vif
    from nova import context, objects, service
    from nova.compute import rpcapi as compute
    from nova.conductor import rpcapi as conductor
    from nova.scheduler import rpcapi as scheduler
    from nova.virt import fake
    from oslo_utils.fixture import uuidsentinel

    uuidsentinel._sentinels["node_aio"] = (folder / "compute_id").read_text()  # the same node after a restart
    fake.Driver = driver(folder)
    from nova.wsgi import osapi_compute

    nova.conf.CONF.set_override("compute_driver", "fake.Driver")
    os_vif.initialize()
    volumes()
    try:
        service.Service.create(binary="nova-conductor", topic=conductor.RPC_TOPIC).start()
        service.Service.create(binary="nova-scheduler", topic=scheduler.RPC_TOPIC).start()
        service.Service.create(binary="nova-compute", topic=compute.RPC_TOPIC, topic_alt=compute.RPC_TOPIC_ALT).start()
        objects.host_mapping.discover_hosts(context.get_admin_context())
        return osapi_compute.application
    except BaseException:
        __import__("traceback").print_exc()
        os._exit(1)  # threads of a service that has started would keep the process


def driver(folder):
    from nova import context, objects
    from nova.image import glance
    from nova.virt import fake

    def knob(name):
        try:
            return json.loads((folder / "knobs.json").read_text()).get(name, 0)
        except FileNotFoundError:
            return 0

    class Driver(fake.FakeDriver):
        def init_host(self, host):
            super().init_host(host)
            found = objects.InstanceList.get_by_host(context.get_admin_context(), host)
            self.instances.update({i.uuid: fake.FakeInstance(i.name, i.power_state, i.uuid) for i in found})

        def spawn(self, *arguments, **keywords):
            time.sleep(knob("spawn_s"))
            return super().spawn(*arguments, **keywords)

        def snapshot(self, request, instance, image_id, update_task_state):
            """The stock driver uploads nothing, so that its images stay queued."""
            super().snapshot(request, instance, image_id, update_task_state)
            time.sleep(knob("snapshot_s"))
            if knob("snapshot_fails"):
                raise RuntimeError("the snapshot fails, because a knob says so")
            images = glance.API()
            name = images.get(request, image_id)["name"]
            form = {"disk_format": "raw", "container_format": "bare", "status": "active"}
            image = {**form, "name": name, "properties": {"image_state": "available"}}
            images.update(request, image_id, image, data=io.BytesIO(b"\0" * 4096), purge_props=False)

    return Driver


def volumes():
    """Volumes and attachments in memory: Nova's own fixture, without the rest of its test package."""
    import nova

    package = types.ModuleType("nova.tests.fixtures")
    package.__path__ = [os.path.join(os.path.dirname(nova.__file__), "tests", "fixtures")]
    package.nova = types.ModuleType("nova.tests.fixtures.nova")
    package.nova.PROJECT_ID = ""
    sys.modules.update({package.__name__: package, package.nova.__name__: package.nova})
    from nova.tests.fixtures.cinder import CinderFixture

    CinderFixture(None).setUp()


def answers(port):
    """Whether a service answers, with whatever status."""
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/").close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


if __name__ == "__main__":
    verb, folder, *rest = sys.argv[1:]
    if verb == "clone":
        rest[0] = Path(rest[0]).resolve()
    {"init": init, "clone": clone, "serve": serve}[verb](Path(folder).resolve(), *rest)
