%% @private
%% @doc Makes a listener known to ranch, for protocols that call ranch about their listener: Cowboy's WebSocket calls
%% `ranch:remove_connection/1', and `cowboy:set_env/3' changes what `ranch:get_protocol_options/1' returns.
%%
%% ranch keeps its state of a listener in the table of `ranch_server', and calls three kinds of supervisors. One
%% process is registered there for the listener, and acts as two of them: the supervisor of the listener and that of
%% its connections. The listener's own process and its acceptors answer `which_children' as the others.
%%
%% If ranch is in the code path but not started, this process waits for it. If it is not compatible with this version
%% of ranch, it logs that and ends; connections are still served.
-module(weir_ranch).
-behaviour(gen_server).

-export([join/3]).
-export([leave/2]).
-export([changed/4]).
-export([arguments/3]).

-export([init/1]).
-export([handle_call/3]).
-export([handle_cast/2]).
-export([handle_info/2]).

-export_type([bridge/0]).

-type bridge() :: pid() | none.

-record(state, {
    name :: weir_listener:name(),
    listener :: pid(),
    options :: weir_listener_options:normal(),
    address :: tuple(),
    %% Connections accepted and ended, for ranch:info/1.
    metrics :: counters:counters_ref()
}).

%% Interval between checks whether ranch is running.
-define(AWAIT_RANCH_MS, 1000).

%% The number of the connections' supervisor: ranch may have several.
-define(CONNECTIONS, 1).

%% @doc Registers the calling listener with ranch, now or when ranch starts. Returns the process that does so, linked
%% to the caller; `none' if there is no ranch.
-spec join(weir_listener:name(), weir_listener_options:normal(), [weir_tcp:socket()]) -> bridge().
join(Name, Options, Sockets) ->
    case code:which(ranch_server) of
        non_existing ->
            none;
        _ ->
            case gen_server:start_link(?MODULE, {Name, self(), Options, address(Sockets)}, []) of
                {ok, Pid} -> Pid;
                ignore -> none
            end
    end.

address([]) ->
    {undefined, undefined};
address([Socket | _]) ->
    {ok, Address} = inet:sockname(Socket),
    Address.

%% @doc Makes ranch forget the listener: its functions then act as for an unknown name.
-spec leave(weir_listener:name(), bridge()) -> ok.
leave(_Name, none) ->
    ok;
leave(Name, Pid) ->
    unlink(Pid),
    Monitor = monitor(process, Pid),
    %% The process may be calling the caller. It does not trap exits, so it ends at once.
    exit(Pid, shutdown),
    receive
        {'DOWN', Monitor, process, Pid, _} -> forget(Name)
    end.

forget(Name) ->
    try
        %% ranch may have a listener of its own with this name by now.
        _ = other_listener(Name) orelse (ranch_server()):cleanup_listener_opts(Name),
        ok
    catch
        %% ranch has stopped.
        error:_ -> ok
    end.

%% @doc Passes changed options of the listener to ranch, which has them at the return. Options that are unchanged here
%% are not set, because they may have changed in ranch.
-spec changed(
    weir_listener:name(), Old :: weir_listener_options:normal(), New :: weir_listener_options:normal(), bridge()
) -> ok.
changed(_Name, _Old, _New, none) ->
    ok;
changed(Name, Old, New, Pid) ->
    ok = gen_server:cast(Pid, {changed, New}),
    _ =
        is_known(Name, Pid) andalso
            [
                set(Name, What, Value)
             || {What, Value} <- as_of_ranch(New), {What, Value} =/= lists:keyfind(What, 1, as_of_ranch(Old))
            ],
    ok.

as_of_ranch(Options = #{args := Args, max_connections := Max}) ->
    [{set_protocol_options, Args}, {set_transport_options, transport_options(Options)}, {set_max_connections, Max}].

set(Name, What, Value) ->
    try
        ok = (ranch_server()):What(Name, Value)
    catch
        %% ranch is being stopped.
        exit:_ -> ok
    end.

%% @doc Returns the arguments of a new connection. Those of ranch take precedence: `ranch:set_protocol_options/2'
%% returns when ranch has them, before the listener gets them.
-spec arguments(weir_listener:name(), bridge(), Ours :: term()) -> term().
arguments(_Name, none, Ours) ->
    Ours;
arguments(Name, Pid, Ours) ->
    try
        true = is_known(Name, Pid),
        (ranch_server()):get_protocol_options(Name)
    catch
        error:_ -> Ours
    end.

%% Whether ranch's entry of this name is of this process.
is_known(Name, Pid) ->
    try
        (ranch_server()):get_listener_sup(Name) =:= Pid
    catch
        error:_ -> false
    end.

-spec init({weir_listener:name(), pid(), weir_listener_options:normal(), tuple()}) -> {ok, #state{}} | ignore.
init({Name, Listener, Options, Address}) ->
    State = #state{
        name = Name, listener = Listener, options = Options, address = Address, metrics = counters:new(2, [])
    },
    %% Before the first connection, if ranch is running.
    case register_listener(whereis(ranch_server), State) of
        ok -> {ok, State};
        refused -> ignore
    end.

register_listener(undefined, _State) ->
    _ = erlang:send_after(?AWAIT_RANCH_MS, self(), register),
    ok;
register_listener(Server, State = #state{name = Name}) ->
    case other_listener(Name) of
        true ->
            refuse(already_started, State);
        false ->
            _ = monitor(process, Server),
            try
                ok = register_listener(State)
            catch
                error:undef -> refuse(undef, State)
            end
    end.

%% Whether ranch has its own listener of this name.
other_listener(Name) ->
    try (ranch_server()):get_listener_sup(Name) of
        Pid -> Pid =/= self() andalso is_process_alive(Pid)
    catch
        error:_ -> false
    end.

refuse(Reason, #state{name = Name}) ->
    ok = weir_reports:log(warning, #{
        what => "a listener cannot be registered with ranch; ranch's functions do not know its name",
        listener => Name,
        reason => Reason
    }),
    refused.

register_listener(#state{name = Name, options = Options, address = Address, metrics = Metrics}) ->
    Ranch = ranch_server(),
    #{handler := {protocol, Module}, args := Args, max_connections := Max} = Options,
    Transport = weir_connection:transport(Options),
    TransportOptions = transport_options(Options),
    ok = Ranch:cleanup_listener_opts(Name),
    Start = [Name, Transport, TransportOptions, Module, Args],
    ok = Ranch:set_new_listener_opts(Name, Max, TransportOptions, Args, Start),
    ok = Ranch:set_stats_counters(Name, Metrics),
    ok = Ranch:set_addr(Name, Address),
    ok = Ranch:set_listener_sup(Name, self()),
    ok = Ranch:set_connections_sup(Name, ?CONNECTIONS, self()).

%% ranch is an optional dependency.
ranch_server() -> ranch_server.

transport_options(Options = #{given := {Given, _, _}}) ->
    SocketOptions = #{socket_opts => maps:get(socket_opts, Given, [])},
    maps:merge(SocketOptions, maps:with([max_connections, handshake_timeout, shutdown], Options)).

%% Requests to the supervisors of the listener and of its connections.
-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}}.
handle_call(which_children, _From, State = #state{name = Name, listener = Listener}) ->
    Acceptors =
        case weir_listener_names:call(Name, info) of
            #{status := running} -> Listener;
            _ -> undefined
        end,
    Played = [{ranch_acceptors_sup, Acceptors}, {ranch_conns_sup_sup, Listener}],
    {reply, [{Id, Pid, supervisor, [Id]} || {Id, Pid} <- Played], State};
handle_call(count_children, _From, State) ->
    Count = count(State),
    {reply, [{specs, 1}, {active, Count}, {supervisors, 0}, {workers, Count}], State};
handle_call({terminate_child, ranch_acceptors_sup}, _From, State = #state{name = Name}) ->
    {reply, weir_listener_names:call(Name, suspend), State};
handle_call({restart_child, ranch_acceptors_sup}, _From, State) ->
    #state{name = Name, address = Address, listener = Listener} = State,
    case weir_listener_names:call(Name, resume) of
        ok ->
            ok = (ranch_server()):set_addr(Name, Address),
            {reply, {ok, Listener}, State};
        {error, _} = Error ->
            {reply, Error, State}
    end;
handle_call(_Request, _From, State) ->
    {reply, {error, ?MODULE}, State}.

count(#state{name = Name, metrics = Metrics}) ->
    case weir_listener_names:call(Name, info) of
        #{connections := Count, accepted := Accepted} ->
            ok = counters:put(Metrics, 1, Accepted),
            ok = counters:put(Metrics, 2, Accepted - Count),
            Count;
        {error, _} ->
            0
    end.

%% ranch also notifies this process of options that the listener has set; they are not new then.
-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast({changed, Options}, State) ->
    {noreply, State#state{options = Options}};
handle_cast(_Request, State) ->
    {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {stop, normal, #state{}}.
handle_info({set_protocol_options, Args}, State = #state{name = Name}) ->
    %% They may have changed again.
    {noreply, change(#{args => arguments(Name, self(), Args)}, State)};
handle_info({set_max_conns, Max}, State) ->
    {noreply, change(#{max_connections => Max}, State)};
handle_info({set_transport_options, Options}, State) ->
    {noreply, change(maps:with([max_connections, handshake_timeout, shutdown, socket_opts], Options), State)};
handle_info({ranch_conns_sup, active_connections, From, Tag}, State) ->
    From ! {Tag, count(State)},
    {noreply, State};
handle_info({'DOWN', _, process, _, _}, State) ->
    _ = erlang:send_after(?AWAIT_RANCH_MS, self(), register),
    {noreply, State};
handle_info(register, State) ->
    case register_listener(whereis(ranch_server), State) of
        ok -> {noreply, State};
        refused -> {stop, normal, State}
    end;
handle_info(_Message, State) ->
    {noreply, State}.

%% The change came from ranch, so it is not passed back.
change(Changes, State = #state{name = Name, options = Options}) ->
    New = maps:filter(fun(Key, Value) -> maps:get(Key, Options, '') =/= Value end, Changes),
    case map_size(New) =:= 0 orelse weir_listener_names:call(Name, {set_options_of_ranch, New}) of
        true ->
            State;
        ok ->
            State#state{options = maps:merge(Options, maps:without([socket_opts], New))};
        {error, Reason} ->
            ok = weir_reports:log(warning, #{
                what => "ranch set options that the listener refuses", listener => Name, reason => Reason
            }),
            %% Restores ranch's options to those of the listener.
            _ = [set(Name, What, Value) || {What, Value} <- as_of_ranch(Options), What =/= set_protocol_options],
            State
    end.
