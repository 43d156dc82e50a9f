%% Calls every function of the native boundary with random terms and with handles of sockets in every state. Each call
%% must return a documented result or fail with badarg.
-module(prop_nif).

-include_lib("proper/include/proper.hrl").

-export([prop_sockets/0]).
-export([prop_pollsets/0]).

%% Functions that decide who polls. Weir must be restarted afterwards.
-define(POLLING, [
    {make, 1}, {set_online, 1}, {claim, 1}, {poll, 2}, {sleep, 3}, {reactor_begin, 3}, {react, 3}, {reap, 2}
]).

-define(LIMITS, #{
    max_connections => 3,
    overload => reset,
    max_rate => infinity,
    per_address => 2,
    placement => local,
    affinity => soft,
    measure => true,
    allow => [{{127, 0, 0, 0}, 8}],
    deny => [{{0, 0, 0, 0, 0, 0, 0, 1}, 128}]
}).

prop_sockets() ->
    Functions = functions() -- ?POLLING,
    ?FORALL(Calls, non_empty(list(call(Functions))), holds(wrong(Calls))).

prop_pollsets() ->
    ?FORALL(Calls, non_empty(list(call(?POLLING))), holds(wrong(Calls))).

%% All exported functions, so that a new one must be described below.
functions() ->
    %% acquire/0 has no arguments, and its effect lasts as long as the process.
    weir_nif:module_info(exports) -- [{module_info, 0}, {module_info, 1}, {acquire, 0}].

%% Keeps the reason of a failure for the caller: a counterexample alone does not show it and may pass the next time.
%% An exception would be lost, because PropEr 1.2 asks for its stack with a function that OTP has removed.
holds(Wrong) ->
    ?WHENFAIL(put(?MODULE, Wrong), Wrong =:= []).

wrong(Calls) ->
    try
        Sockets = sockets(),
        Wrong = [{Call, Outcome} || Call <- Calls, {wrong, Outcome} <- [outcome(Call, Sockets)]],
        [_ = weir_nif:close(Handle, now) || {'$inet', weir_tcp, Handle} <- weir:sockets()],
        ok = gen_tcp:close(maps:get(peer, Sockets)),
        ok = file:close(maps:get(file, Sockets)),
        ok = weir_nif:group_delete(maps:get(group, Sockets)),
        ok = weir_nif:relay_stop(maps:get(relay, Sockets)),
        [gen_tcp:close(Peer) || Peer <- maps:get(relayed, Sockets)],
        _ = weir_test_wait:messages(),
        Wrong
    catch
        Class:Reason:Stack -> [{around_the_calls, {Class, Reason, Stack}}]
    end.

outcome({Function, Arguments}, Sockets) ->
    Actual = tame(Function, [actual(Argument, Sockets) || Argument <- Arguments]),
    try apply(weir_nif, Function, Actual) of
        Result ->
            case is_documented(Function, Result) of
                true -> right;
                false -> {wrong, Result}
            end
    catch
        error:badarg -> right;
        Class:Reason -> {wrong, {Class, Reason}}
    end.

%% Handles of sockets in each state.
sockets() ->
    {ok, Open} = weir_nif:open(weir_tcp, inet, 1),
    {ok, {_, _, Listening}} = gen_tcp:listen(0, [{tcp_module, weir_tcp}, {ip, loopback}]),
    {ok, Port} = inet:port({'$inet', weir_tcp, Listening}),
    {ok, Peer} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}]),
    {ok, {_, _, Connected}} = gen_tcp:accept({'$inet', weir_tcp, Listening}, weir_test_wait:patience()),
    {ok, Closed} = weir_nif:open(weir_tcp, inet, 1),
    ok = weir_nif:close(Closed, now),
    {ok, File} = file:open(code:which(?MODULE), [read, raw, binary]),
    {A, OneEnd} = pair(Listening, Port),
    {B, OtherEnd} = pair(Listening, Port),
    {ok, Opened, _, _} = weir_nif:file_open(list_to_binary(code:which(?MODULE))),
    {ok, Relay} = weir_nif:relay_start(
        A, B, 1, self(), <<>>, {1000, 1000, auto, {infinity, infinity}, false, false, weir_nif:latency_new()}
    ),
    {ok, Group} = weir_nif:group_new({drop_oldest, 3, 1000, 3}),
    #{
        listener => weir_nif:listener_new(1, ?LIMITS),
        relay => Relay,
        group => Group,
        relayed => [OneEnd, OtherEnd],
        open => Open,
        listening => Listening,
        connected => Connected,
        closed => Closed,
        port => Port,
        peer => Peer,
        file => File,
        opened => Opened
    }.

pair(Listening, Port) ->
    {ok, Peer} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}]),
    {ok, {_, _, Handle}} = gen_tcp:accept({'$inet', weir_tcp, Listening}, weir_test_wait:patience()),
    {Handle, Peer}.

actual({socket, State}, Sockets) ->
    maps:get(State, Sockets);
actual({term, Term}, _Sockets) ->
    Term;
actual({dead_process}, _Sockets) ->
    dead_process();
actual({huge_binary}, _Sockets) ->
    binary:copy(<<"huge">>, 1000000);
actual({deep, Depth}, _Sockets) ->
    lists:foldl(fun(_, Term) -> [Term] end, [], lists:seq(1, Depth));
actual({file}, #{file := File}) ->
    prim_file:get_handle(File);
actual({output}, #{opened := File}) ->
    [
        <<"head">>,
        {sendfile, File, rand:uniform(20) - 10, rand:uniform(20) - 10},
        {sendfile, File, 0, 1 bsl (rand:uniform(3) * 21)}
    ];
actual({reference}, _Sockets) ->
    make_ref();
actual({self}, _Sockets) ->
    self();
actual({function}, _Sockets) ->
    fun dead_process/0.

dead_process() ->
    {Pid, Monitor} = spawn_monitor(fun() -> ok end),
    receive
        {'DOWN', Monitor, process, Pid, _} -> Pid
    end.

%% Avoids connecting to ports of other programs, and creating new pollsets.
tame(connect, [Handle, Address]) when is_tuple(Address), tuple_size(Address) > 1, element(1, Address) =/= local ->
    [Handle, setelement(2, Address, 0)];
%% Avoids taking descriptors of the virtual machine.
tame(fdopen, [Module, Family, Pollset, Fd]) when is_integer(Fd), Fd >= 0, Fd < 1 bsl 31 ->
    [Module, Family, Pollset, 1 bsl 30];
tame(Makes, [Pollset]) when Makes =:= make orelse Makes =:= claim, is_integer(Pollset), Pollset >= 0, Pollset < 1024 ->
    [1];
tame(_Function, Arguments) ->
    Arguments.

%% Generators -----------------------------------------------------------------

call(Functions) ->
    ?LET({Function, Arity}, oneof(Functions), {Function, arguments(Function, Arity)}).

arguments(_Function, 0) ->
    [];
%% Four matching arguments would not occur by chance.
arguments(sendfile_begin, 4) ->
    oneof([vector(4, argument()), [{socket, connected}, {file}, {term, nat()}, {term, nat()}]]);
arguments(reactor_leave, 4) ->
    oneof([
        vector(4, argument()), [handle_of(), {self}, {term, integer(1, 2)}, {term, oneof([list(binary()), improper()])}]
    ]);
arguments(group_join, 4) ->
    oneof([vector(4, argument()), [{socket, group}, handle_of(), {term, boolean()}, {term, binary()}]]);
arguments(group_broadcast, 5) ->
    Message = oneof([{term, binary()}, {huge_binary}]),
    Except = oneof([{term, undefined}, handle_of()]),
    oneof([
        vector(5, argument()),
        [{socket, group}, Message, Except, oneof([{term, undefined}, {reference}]), {term, nat()}]
    ]);
arguments(Tell, 3) when Tell =:= tell; Tell =:= settled ->
    oneof([vector(3, argument()), [handle_of(), {term, nat()}, {term, oneof([on_heap, off_heap])}]]);
arguments(Sendfile, 1) when Sendfile =:= sendfile_continue; Sendfile =:= sendfile_from_disk ->
    oneof([vector(1, argument()), [{socket, connected}]]);
arguments(reactor_write, 2) ->
    oneof([vector(2, argument()), [{socket, connected}, {output}]]);
arguments(file_read, 3) ->
    oneof([vector(3, argument()), [{socket, opened}, {term, a_number()}, {term, a_number()}]]);
arguments(Open, Arity) when Open =:= file_open; Open =:= file_open_below ->
    Names = {term, oneof([[], [<<>>], [<<"..">>], [<<"dev">>, <<"null">>], list(binary())])},
    oneof([
        vector(Arity, argument()),
        lists:sublist([{term, oneof([<<"/">>, <<"/dev/null">>, <<"/proc/self/stat">>, <<>>])}, Names], Arity)
    ]);
arguments(listener_new, 2) ->
    oneof([vector(2, argument()), [{term, integer(0, 2)}, limits()]]);
arguments(listener_set_limits, 2) ->
    oneof([vector(2, argument()), [{socket, listener}, limits()]]);
arguments(group_new, 1) ->
    oneof([vector(1, argument()), [settings()]]);
arguments(relay_start, 6) ->
    [handle_of(), handle_of(), {term, integer(0, 2)}, argument(), {term, binary()}, relay_options()];
arguments(relay_connect, 6) ->
    [
        handle_of(),
        {term, no_server()},
        {term, integer(0, 2)},
        oneof([{self}, argument()]),
        {term, binary()},
        relay_options()
    ];
arguments(Function, Arity) ->
    case atom_to_list(Function) of
        "listener_" ++ _ -> first({socket, listener}, Arity);
        "group_" ++ _ -> first({socket, group}, Arity);
        "relay_" ++ _ -> first({socket, relay}, Arity);
        _ -> vector(Arity, argument())
    end.

first(Argument, Arity) ->
    oneof([vector(Arity, argument()), ?LET(Others, vector(Arity - 1, argument()), [Argument | Others])]).

%% Addresses where no server listens.
no_server() ->
    oneof([
        {{127, 0, 0, 1}, 0},
        {{0, 0, 0, 0, 0, 0, 0, 1}, 0, 0, 0},
        {local, <<"/nobody">>},
        {local, <<0, "nobody">>},
        {local, binary()}
    ]).

handle_of() ->
    {socket, oneof([open, listening, connected, closed, group])}.

relay_options() ->
    {term, {
        integer(0, 100000),
        integer(0, 100000),
        oneof([auto, true, false, other]),
        {timeout(), timeout()},
        boolean(),
        boolean(),
        oneof([undefined, other])
    }}.

%% Replaces one limit of a listener by another term.
limits() ->
    ?LET({Name, Value}, {oneof(maps:keys(?LIMITS)), oneof([any(), a_number(), infinity])},
        {term, (?LIMITS)#{Name => Value}}).

settings() ->
    {term, {oneof([drop_oldest, drop_newest, conflate, disconnect, leave, other]), a_number(), a_number(), a_number()}}.

argument() ->
    frequency([
        {8, {socket, oneof([open, listening, connected, closed, listener, group, relay])}},
        {4, {term, any()}},
        {3, {term, a_number()}},
        {3, {term, known()}},
        {2, {term, list(setting())}},
        {1, {term, list(option_name())}},
        {1, {term, improper()}},
        {1, {term, binary()}},
        {1, {file}},
        {1, {term, list(binary())}},
        {1, ?LET(Key, any(), {term, maps:put(Key, 1, #{})})},
        {1, oneof([{dead_process}, {huge_binary}, {deep, 100000}, {reference}, {self}, {function}])}
    ]).

a_number() ->
    oneof([
        integer(-3, 3),
        %% The first pollset of a process.
        1025,
        integer(),
        float(),
        edge()
    ]).

%% Numbers around the limits of machine integers, handles and small integers.
edge() ->
    ?LET(
        {Bits, Sign, Difference},
        {oneof([8, 16, 24, 31, 32, 56, 59, 63, 64, 200]), oneof([1, -1]), integer(-1, 1)},
        Sign * (1 bsl Bits) + Difference
    ).

known() ->
    oneof([
        true, false, once, flush, background, now, descriptor, read, write, read_write, infinity, undefined, weir_tcp,
        'weir \x{fc}',
        {127, 0, 0, 1}, {0, 0, 0, 0}, {0, 0, 0, 0, 0, 0, 0, 1}, {256, 0, 0, 1}, {127, 0, 0}, {},
        {{127, 0, 0, 1}, 0}, {{0, 0, 0, 0, 0, 0, 0, 1}, 0, 0, 0}, {{0, 0, 0, 0, 0, 0, 0, 1}, 0, 1 bsl 32, -1},
        {{127, 0, 0, 1}, 65536}, {local, <<>>}, {local, <<0, "weir prop">>}, {local, binary:copy(<<"x">>, 200)},
        {local, "path"}, [], <<>>, <<1:3>>, inet, inet6, local, <<"/proc/self/ns/net">>, <<"/nowhere">>
    ]).

setting() ->
    frequency([
        {4, {option_name(), oneof([true, false, once, 0, 1, integer(), a_number(), any()])}},
        {1, {raw, integer(), integer(), binary()}},
        {1, {linger, {boolean(), integer()}}},
        {1, {packet, oneof([1, 2, 4, asn1, cdr, sunrm, fcgi, tpkt, line, http, httph, http_bin, httph_bin])}},
        {1, any()}
    ]).

option_name() ->
    oneof([
        active, mode, packet, nodelay, reuseaddr, reuseport, keepalive, sndbuf, recbuf, linger, buffer,
        packet_size, line_delimiter, header, deliver, high_watermark, low_watermark, high_msgq_watermark,
        low_msgq_watermark, delay_send, send_timeout, send_timeout_close, exit_on_close, show_econnreset,
        priority, tos, tclass, ttl, recvtos, recvtclass, recvttl, pktoptions, ipv6_v6only, dontroute, nopush,
        reuseport_lb, exclusiveaddruse, keepcnt, keepidle, keepintvl, user_timeout, bind_to_device, netns, debug,
        read_ahead, {raw, {level(), integer(0, 80), room()}}, {raw, level(), integer(0, 80), room()}, nonsense
    ]).

%% IPPROTO_IP, SOL_SOCKET, IPPROTO_TCP, IPPROTO_IPV6.
level() -> oneof([0, 1, 6, 41, integer()]).

room() -> oneof([integer(), integer(0, 300), binary()]).

improper() ->
    %% An element of a wrong type would hide the improper tail.
    ?LET(
        {Elements, Tail},
        {non_empty(oneof([list(any()), list(binary())])), oneof([binary(), integer(), atom])},
        Elements ++ Tail
    ).

%% Documented results ------------------------------------------------------------

is_documented(relay_start, {error, {Handle, Reason}}) ->
    is_integer(Handle) andalso is_atom(Reason);
is_documented(relay_connect, {error, {At, Reason}}) ->
    (At =:= connect orelse is_integer(At)) andalso is_atom(Reason);
is_documented(relay_connect, {wait, Handle, Operation}) ->
    is_integer(Handle) andalso is_integer(Operation);
is_documented(_Function, {error, Reason}) ->
    is_atom(Reason);
is_documented(available, Result) ->
    Result =:= true;
is_documented(loaded, Result) ->
    Result =:= true;
%% No argument may make it panic.
is_documented(panics, Result) ->
    Result =:= {0, <<>>};
is_documented(renew, Result) ->
    Result =:= ok orelse Result =:= done;
is_documented(Function, Result) when Function =:= make; Function =:= set_online -> Result =:= ok;
is_documented(pollers, Result) ->
    lists:all(fun is_pid/1, Result);
is_documented(claim, {ok, Token}) ->
    is_integer(Token);
is_documented(poll, {Events, Round}) ->
    (is_integer(Events) orelse lists:member(Events, [bulk, relays])) andalso is_integer(Round);
is_documented(poll, Result) ->
    Result =:= stale;
is_documented(sleep, Result) ->
    lists:member(Result, [asleep, busy, stale]);
is_documented(counters, Result) ->
    is_map(Result);
is_documented(Function, {ok, Handle}) when Function =:= open; Function =:= open_in; Function =:= fdopen ->
    is_integer(Handle);
is_documented(bind, Result) ->
    Result =:= ok;
is_documented(listen, Result) ->
    Result =:= ok;
is_documented(refuse, Result) ->
    Result =:= ok;
is_documented(has_backlog, Result) ->
    is_boolean(Result);
is_documented(accept, {Tag, Number}) ->
    lists:member(Tag, [ok, wait]) andalso is_integer(Number);
is_documented(connect, {wait, Operation}) ->
    is_integer(Operation);
is_documented(connect, Result) ->
    Result =:= ok;
is_documented(send, {Tag, Operation, _}) ->
    lists:member(Tag, [wait, full]) andalso is_integer(Operation);
is_documented(send, Result) ->
    Result =:= ok;
is_documented(recv, {ok, http_eoh}) ->
    true;
is_documented(recv, {ok, Data}) ->
    is_binary(Data) orelse is_list(Data) orelse is_tuple(Data);
is_documented(sendfile_begin, Result) ->
    Result =:= ok;
is_documented(sendfile_continue, {ok, Sent}) ->
    is_integer(Sent);
is_documented(sendfile_continue, {wait, Operation}) ->
    is_integer(Operation);
is_documented(sendfile_continue, Result) ->
    Result =:= more orelse Result =:= disk;
is_documented(sendfile_from_disk, {ok, Sent}) ->
    is_integer(Sent);
is_documented(sendfile_from_disk, {wait, Operation}) ->
    is_integer(Operation);
is_documented(sendfile_from_disk, Result) ->
    Result =:= more;
is_documented(recv, {wait, Operation}) ->
    is_integer(Operation);
is_documented(Ask, {settle, Told}) when Ask =:= activate_once; Ask =:= setopts; Ask =:= unrecv -> is_integer(Told);
is_documented(unrecv, Result) ->
    Result =:= ok;
is_documented(cancel, Result) ->
    Result =:= ok;
is_documented(shutdown, Result) ->
    Result =:= ok;
is_documented(close, {wait, Operation}) ->
    is_integer(Operation);
is_documented(close, Result) ->
    Result =:= ok;
is_documented(activate_once, Result) ->
    Result =:= ok;
is_documented(setopts, Result) ->
    Result =:= ok;
is_documented(Tell, Result) when Tell =:= tell; Tell =:= settled -> Result =:= ok;
is_documented(unsettled, {Owner, Told}) ->
    is_pid(Owner) andalso is_integer(Told);
is_documented(unsettled, Result) ->
    Result =:= done;
is_documented(all_unsettled, {ok, Handles}) ->
    is_list(Handles);
is_documented(all_unsettled, Result) ->
    Result =:= done;
is_documented(passivate, {ok, {active, Active}}) ->
    is_boolean(Active) orelse Active =:= once orelse is_integer(Active);
is_documented(getopts, {ok, Values}) ->
    is_list(Values);
is_documented(getstat, {ok, Values}) ->
    length(Values) =:= 10;
is_documented(Function, {ok, {local, Path}}) when Function =:= sockname; Function =:= peername -> is_binary(Path);
is_documented(Function, {ok, {Address, Port}}) when Function =:= sockname; Function =:= peername ->
    inet:is_ip_address(Address) andalso is_integer(Port);
is_documented(owner, {ok, Owner}) ->
    is_pid(Owner) orelse Owner =:= undefined;
is_documented(set_owner, Result) ->
    Result =:= ok;
is_documented(monitor, Result) ->
    Result =:= ok;
is_documented(demonitor, Result) ->
    is_boolean(Result);
is_documented(Function, Result) when Function =:= move; Function =:= place -> Result =:= ok;
is_documented(evacuate, Result) ->
    lists:member(Result, [ok, more, done]);
is_documented(info, {ok, Info}) ->
    is_map(Info);
is_documented(Piece, {ok, Sockets}) when Piece =:= sockets; Piece =:= traffic -> is_list(Sockets);
is_documented(Piece, Result) when Piece =:= sockets; Piece =:= traffic -> Result =:= done;
is_documented(send_now, {ok, Taken}) ->
    is_integer(Taken);
is_documented(notify_writable, Result) ->
    Result =:= ok;
is_documented(reactor_begin, Result) ->
    Result =:= ok;
is_documented(react, {Events, Sockets, Round}) ->
    is_list(Events) andalso is_integer(Sockets) andalso is_integer(Round);
is_documented(react, Result) ->
    Result =:= stale;
is_documented(reap, Result) ->
    lists:member(Result, [ok, more, done]);
is_documented(abandoned, Result) ->
    is_list(Result);
is_documented(lingering, {ok, Handles}) ->
    is_list(Handles);
is_documented(lingering, Result) ->
    Result =:= done;
is_documented(left_behind, Result) ->
    Result =:= done orelse is_integer(Result);
is_documented(give_up, Result) ->
    Result =:= ok;
is_documented(reactor_of, {ok, Pid}) ->
    is_pid(Pid);
is_documented(reactor_write, Result) ->
    Result =:= ok;
is_documented(Open, {ok, File, Size, Modified}) when Open =:= file_open; Open =:= file_open_below ->
    is_reference(File) andalso is_integer(Size) andalso is_integer(Modified);
is_documented(file_read, {ok, Bytes}) ->
    is_binary(Bytes);
is_documented(Function, Result) when Function =:= file_fetch; Function =:= file_resume -> Result =:= ok;
is_documented(file_waiting, {ok, Handles}) ->
    is_list(Handles);
is_documented(file_waiting, Result) ->
    Result =:= done;
is_documented(listener_new, Result) ->
    is_reference(Result);
is_documented(Count, Result) when Count =:= listener_set_acceptor; Count =:= listener_waiting; Count =:= group_size ->
    is_integer(Result);
is_documented(Accept, {ok, Handle}) when Accept =:= listener_accept; Accept =:= listener_accept_for ->
    is_integer(Handle);
is_documented(Accept, Result) when Accept =:= listener_accept; Accept =:= listener_accept_for ->
    lists:member(Result, [empty, outdated]);
is_documented(Map, Result) when Map =:= listener_info; Map =:= contention -> is_map(Result);
is_documented(Count, Result) when Count =:= relay_count; Count =:= group_count -> is_integer(Result);
is_documented(Latency, {Sum, Times}) when Latency =:= listener_latency; Latency =:= latency_seen ->
    is_integer(Sum) andalso is_list(Times);
is_documented(latency_new, Result) ->
    is_reference(Result);
is_documented(schedules_begin, {ok, Session}) ->
    is_integer(Session);
is_documented(schedules_end, {ok, Schedulers}) ->
    is_list(Schedulers);
is_documented(Enabled, Result) when Enabled =:= enabled; Enabled =:= enabled_running_procs ->
    lists:member(Result, [discard, remove]);
is_documented(trace, Result) ->
    Result =:= ok;
is_documented(List, {ok, Entries}) when
    List =:= listener_connections; List =:= listener_relays; List =:= relays; List =:= relays_due
->
    is_list(Entries);
is_documented(List, Result) when
    List =:= listener_connections; List =:= listener_relays; List =:= relays; List =:= relays_due; List =:= relay_expire
->
    Result =:= done;
is_documented(relay_expire, Result) ->
    is_integer(Result);
is_documented(Function, {ok, Number}) when
    Function =:= relay_start; Function =:= group_new; Function =:= group_broadcast; Function =:= duplicate
->
    is_integer(Number);
is_documented(relay_info, {ok, {Owner, Pollset, Statistics}}) ->
    is_pid(Owner) andalso is_integer(Pollset) andalso is_map(Statistics);
is_documented(relay_peers, {ok, Peers}) ->
    tuple_size(Peers) =:= 2;
is_documented(group_info, {ok, Info}) ->
    is_map(Info);
is_documented(Function, ok) ->
    lists:member(Function, [
        listener_add_socket,
        listener_own,
        listener_retry,
        listener_discard,
        listener_clear,
        listener_set_limits,
        listener_set_version,
        listener_exempt,
        reactor_listen,
        reactor_resume,
        reactor_join,
        reactor_connect,
        reactor_leave,
        relay_stop,
        group_delete,
        group_join,
        group_leave,
        group_withdraw
    ]);
is_documented(_Function, _Result) ->
    false.
