# Varnish 7 in front of Larder: docs/cdn.md. Needs the module xkey (Debian package varnish-modules).
vcl 4.1;

import std;
import xkey;

backend larder {
    .host = "127.0.0.1";
    .port = "8080";
}

# Who may purge: the host of Larder.
acl purgers {
    "127.0.0.1";
    "::1";
}

sub vcl_recv {
    if (req.method == "PURGE") {
        if (client.ip !~ purgers) {
            return (synth(403));
        }
        if (req.http.xkey-purge) {
            set req.http.n = xkey.purge(req.http.xkey-purge);
        } elsif (req.http.xkey-softpurge) {
            set req.http.n = xkey.softpurge(req.http.xkey-softpurge);
        } else {
            return (synth(400));
        }
        return (synth(200));
    }
    # What somebody may read is not what everybody may, and who names a serial wants no older state.
    if (req.http.Authorization || req.http.Cookie || req.http.X-Devpi-Auth
        || req.http.X-Larder-Serial || req.http.X-Devpi-Serial) {
        return (pass);
    }
}

sub vcl_backend_response {
    # Larder names the tags of an answer, by which it is purged.
    set beresp.http.xkey = beresp.http.Surrogate-Key;
    # What Larder lets caches keep longer than clients. Range requests are answered from the whole.
    if (beresp.http.Surrogate-Control && beresp.status == 200) {
        set beresp.ttl = std.duration(
            regsub(beresp.http.Surrogate-Control, "^max-age=([0-9]+).*$", "\1s"), 0s);
        set beresp.grace = std.duration(
            regsub(beresp.http.Surrogate-Control, "^.*stale-while-revalidate=([0-9]+).*$", "\1s"), 0s);
        set beresp.uncacheable = false;
        return (deliver);
    }
}

sub vcl_deliver {
    unset resp.http.xkey;
    unset resp.http.Surrogate-Control;
    unset resp.http.Surrogate-Key;
    unset resp.http.CDN-Cache-Control;
    unset resp.http.Cache-Tag;
    unset resp.http.Cache-Groups;
}
