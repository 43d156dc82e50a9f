%% @doc Events of Weir, in the format of the `telemetry' library: a name is a list of atoms, and a handler is called
%% with it, a map of measurements, a map of metadata and the handler's configuration.
%%
%% While the application `telemetry' runs, its handlers get the events too, and {@link attach/4} attaches there.
%% Otherwise handlers are kept here, also those attached before `telemetry' was started. An event without a handler
%% costs two look-ups.
%%
%% A handler runs in the process in which the event happens, so it should be quick. A handler that raises is detached
%% and logged.
%%
%% <h2>Shape</h2>
%% A name is `[weir, Thing, What]'. An operation that takes time always has a `stop', also after a failure, and a
%% `start' if that is useful. Keys have the same meaning in all events:
%% <table>
%% <tr><td>measurement</td><td>meaning</td></tr>
%% <tr><td>`count'</td><td>the number of things that the event is about</td></tr>
%% <tr><td>`duration'</td><td>how long it took, in the native unit of `erlang:monotonic_time/0'</td></tr>
%% <tr><td>`monotonic_time', `system_time'</td><td>the time of the event, in native units</td></tr>
%% </table>
%% <table>
%% <tr><td>metadata</td><td>meaning</td></tr>
%% <tr><td>`name'</td><td>the name of the listener</td></tr>
%% <tr><td>`pid'</td><td>the process in which it happens</td></tr>
%% <tr><td>`socket'</td><td>the connection, of gen_tcp or ssl</td></tr>
%% <tr><td>`peer'</td><td>`{Address, Port}' or `{local, Path}' of the peer; `undefined' if it had closed
%% before</td></tr>
%% <tr><td>`pollset'</td><td>the number of the pollset</td></tr>
%% <tr><td>`reason'</td><td>in a `stop': `normal', or the reason of the failure</td></tr>
%% </table>
%% Log reports have these keys too, `listener' in place of `name', and `domain => [weir]' in their metadata.
%%
%% <h2>Events of listeners</h2>
%% <table>
%% <tr><td>event</td><td>measurements</td><td>metadata</td></tr>
%% <tr><td>`[weir, listener, start]', `stop', `suspend', `resume'</td><td>`connections', `accepted'</td>
%%   <td>`name', `port', `status'</td></tr>
%% <tr><td>`[weir, listener, accept]': a batch of connections; not of reactors</td><td>`count'</td>
%%   <td>`name', `pollset'</td></tr>
%% <tr><td>`[weir, listener, exhausted]': no descriptors; connections wait in the backlog</td><td>`count'</td>
%%   <td>`name', `reason'</td></tr>
%% <tr><td>`[weir, listener, recover]': descriptors are available again</td><td>`connections', `accepted'</td>
%%   <td>`name', `port', `status'</td></tr>
%% <tr><td>`[weir, handshake, stop]': a PROXY header or a TLS handshake</td>
%%   <td>`monotonic_time', `duration'</td><td>`name', `kind' (`proxy' or `tls'), `peer', `pid', `reason': `normal', or
%% ssl's reason, such as `{tls_alert, _}', `closed' or `timeout'; `not_proxy' and `bad_header' for PROXY headers.
%% `name' is `undefined' for a reactor without a listener</td></tr>
%% <tr><td>`[weir, connection, start]': for funs</td><td>`monotonic_time', `system_time'</td>
%%   <td>`name', `socket', `peer', `pid'</td></tr>
%% <tr><td>`[weir, connection, stop]': the fun has returned, or raised</td><td>`monotonic_time', `duration'</td>
%%   <td>the same, and `reason': `normal' or `{Class, Reason}'</td></tr>
%% </table>
-module(weir_event).

-export([attach/4]).
-export([attach_many/4]).
-export([detach/1]).
-export([list_handlers/1]).
-export([execute/3]).
-export([is_attached/1]).
-export([is_any_attached/1]).
-export([library/0]).

-export_type([name/0, handler/0, handler_id/0]).

-define(TELEMETRY, (?MODULE:library())).

-type name() :: [atom(), ...].
-type measurements() :: map().
-type metadata() :: map().
-type handler_id() :: term().
-type handler() ::
    fun((name(), measurements(), metadata(), Config :: term()) -> term()) | {module(), Function :: atom()}.

%% @doc Attaches a handler to an event.
-spec attach(handler_id(), name(), handler(), Config :: term()) -> ok | {error, already_exists}.
attach(Id, Event, Handler, Config) -> attach_many(Id, [Event], Handler, Config).

%% @doc Attaches a handler to several events. Fails with `badarg' if an event or the handler is not valid.
-spec attach_many(handler_id(), [name()], handler(), Config :: term()) -> ok | {error, already_exists}.
attach_many(Id, Events, Handler, Config) ->
    Valid = lists:all(fun(Event) -> is_list(Event) andalso lists:all(fun is_atom/1, Event) end, Events),
    Function = function(Handler),
    Valid orelse error(badarg, [Id, Events, Handler, Config]),
    case has_telemetry() andalso not has(Id, handlers()) of
        true -> (?TELEMETRY):attach_many(Id, Events, Function, Config);
        false -> change(fun(Handlers) -> add(Id, Events, Function, Config, Handlers) end)
    end.

function(Function) when is_function(Function, 4) -> Function;
function({Module, Function}) when is_atom(Module), is_atom(Function) -> fun Module:Function/4;
function(Other) -> error(badarg, [Other]).

%% @doc Detaches a handler from all its events.
-spec detach(handler_id()) -> ok | {error, not_found}.
detach(Id) ->
    case has_telemetry() andalso not has(Id, handlers()) of
        true -> (?TELEMETRY):detach(Id);
        false -> change(fun(Handlers) -> remove(Id, Handlers) end)
    end.

%% @doc Returns the handlers of all events whose names begin with this prefix.
-spec list_handlers(Prefix :: [atom()]) ->
    [#{id := handler_id(), event_name := name(), function := fun(), config := term()}].
list_handlers(Prefix) ->
    Ours = [
        #{id => Id, event_name => Event, function => Function, config => Config}
     || {Event, Attached} <- maps:to_list(handlers()),
        lists:prefix(Prefix, Event),
        {Id, Function, Config} <- Attached
    ],
    case has_telemetry() of
        true -> Ours ++ (?TELEMETRY):list_handlers(Prefix);
        false -> Ours
    end.

%% @doc Calls the handlers of an event.
-spec execute(name(), measurements(), metadata()) -> ok.
execute(Event, Measurements, Metadata) ->
    lists:foreach(
        fun(Handler) -> call(Handler, Event, Measurements, Metadata) end, maps:get(Event, handlers(), [])
    ),
    case has_telemetry() of
        true -> (?TELEMETRY):execute(Event, Measurements, Metadata);
        false -> ok
    end.

call({Id, Function, Config}, Event, Measurements, Metadata) ->
    try
        _ = Function(Event, Measurements, Metadata, Config),
        ok
    catch
        Class:Reason:Stack ->
            _ = detach(Id),
            weir_reports:log(error, #{
                what => "an event handler raised and was detached",
                handler => Id,
                event => Event,
                reason => {Class, Reason},
                stacktrace => Stack
            })
    end.

%% @doc Whether an event has a handler, so that unused measurements can be skipped. Always `true' with `telemetry'.
-spec is_attached(name()) -> boolean().
is_attached(Event) ->
    has_telemetry() orelse is_map_key(Event, handlers()).

%% @doc Whether any of these events has a handler. If no handler is attached at all, as cheap as {@link is_attached/1}.
-spec is_any_attached([name()]) -> boolean().
is_any_attached(Events) ->
    has_telemetry() orelse is_any_key(Events, handlers()).

is_any_key(_Events, Handlers) when map_size(Handlers) =:= 0 -> false;
is_any_key(Events, Handlers) -> lists:any(fun(Event) -> is_map_key(Event, Handlers) end, Events).

%% The supervisor exists while the application runs. A module that is only loaded prints warnings.
has_telemetry() -> whereis(telemetry_sup) =/= undefined.

%% @private
%% @doc Returns the module of `telemetry', an optional dependency. A module name returned by a remote call is unknown
%% to the compiler, so a release without telemetry gets no warnings of undefined functions.
-spec library() -> module().
library() -> telemetry.

%% Rarely written and often read.
handlers() -> persistent_term:get(?MODULE, #{}).

change(Change) ->
    global:trans({?MODULE, self()}, fun() -> changed(Change(handlers())) end, [node()]).

changed({ok, Handlers}) -> persistent_term:put(?MODULE, Handlers);
changed({error, _} = Error) -> Error.

add(Id, Events, Function, Config, Handlers) ->
    case has(Id, Handlers) of
        true ->
            {error, already_exists};
        false ->
            Attach = fun(Event, Now) ->
                Now#{Event => maps:get(Event, Now, []) ++ [{Id, Function, Config}]}
            end,
            {ok, lists:foldl(Attach, Handlers, Events)}
    end.

remove(Id, Handlers) ->
    case has(Id, Handlers) of
        true ->
            Without = maps:map(fun(_, Attached) -> lists:keydelete(Id, 1, Attached) end, Handlers),
            {ok, maps:filter(fun(_, Attached) -> Attached =/= [] end, Without)};
        false ->
            {error, not_found}
    end.

has(Id, Handlers) ->
    lists:any(fun(Attached) -> lists:keymember(Id, 1, Attached) end, maps:values(Handlers)).

