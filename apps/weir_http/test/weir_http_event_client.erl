%% A client of event streams for the tests, for the route /go of `weir_http_funs'.
-module(weir_http_event_client).

-export([open/1, open/2, events/1]).

%% Opens a stream. Returns the socket of the server's side, and the client's after its head was read.
open(Port) -> open(weir_http_client:connect(Port), weir_http_client:get("/go")).

open(Client, Request) ->
    ok = weir_http_client:send(Client, Request),
    {200, Fields} = weir_http_client:head(Client),
    {weir_http_funs:opened(), Client, Fields}.

%% Returns all events until the end.
events(Client) -> weir_http_event_reader:body(weir_http_client:rest(Client)).
