%% The interface of a third-party HTTP server for weir_with_http_SUITE: every server has the same pages.
-module(weir_with_server).

%% Required modules.
-callback needs() -> [module()].

%% Serves the directory and the pages on a port of its choice, on sockets of OTP or of Weir, until the caller ends or
%% stop/0 is called.
-callback start(stock | weir, file:filename()) -> inet:port_number().
-callback stop() -> ok.

%% The paths of pages: `hello' returns "hello world", `sum' answers a POST with the base64 of its body's SHA-256, and
%% {file, Name} is a file of the directory.
-callback path(page()) -> string().

%% Whether it supports pipelined requests.
-callback pipelines() -> boolean().

-type page() :: hello | sum | {file, string()}.

-export_type([page/0]).
