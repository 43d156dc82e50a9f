%% An HTTP server of others, as weir_with_http_SUITE wants it: the same pages on every one.
-module(weir_with_server).

%% What has to be there.
-callback needs() -> [module()].

%% Serves the directory and the pages on a port of its choice, on sockets of OTP or of Weir, until the calling process
%% ends or stop/0 is called.
-callback start(stock | weir, file:filename()) -> inet:port_number().
-callback stop() -> ok.

%% Where the pages are: `hello' says "hello world", `sum' answers a POST with the SHA-256 of its body in base 64, and
%% {file, Name} is a file of the directory.
-callback path(page()) -> string().

%% Whether it answers requests that come before the answer to the one before.
-callback pipelines() -> boolean().

-type page() :: hello | sum | {file, string()}.

-export_type([page/0]).
