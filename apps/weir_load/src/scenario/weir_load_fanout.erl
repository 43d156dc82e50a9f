%% @doc Scenario `fanout': clients that receive the messages that the server sends to all. The first 8 bytes of a
%% message are the time when it was sent, in nanoseconds, big-endian, from which its latency follows. The time is that
%% of CLOCK_MONOTONIC, which needs a server on the same machine, or, with `--clock system', of a server whose clock is
%% right.
-module(weir_load_fanout).
-behaviour(weir_load_scenario).

-export([describe/0]).
-export([init/1]).
-export([connect/2]).
-export([request/2]).
-export([response/2]).
-export([done/1]).

-record(listener, {size :: pos_integer(), clock :: monotonic | system, part = <<>> :: binary()}).

-spec describe() -> weir_load_scenario:description().
describe() ->
    #{
        summary => "clients that receive what the server sends to all; latency by a timestamp in each message",
        arrivals => none,
        options => [
            #{name => size, type => {integer, 8, 1_000_000}, value => "BYTES", default => 128,
                help => "bytes of a message (128)"},
            #{name => clock, type => {choice, [monotonic, system]}, value => "C", default => monotonic,
                help => "clock of the timestamp in its first 8 bytes: CLOCK_MONOTONIC, or since 1970 (monotonic)"}
        ],
        defaults => [{connections, "100"}]
    }.

-spec init(#{size := pos_integer(), clock := monotonic | system, _ => _}) -> {ok, #listener{}}.
init(#{size := Size, clock := Clock}) -> {ok, #listener{size = Size, clock = Clock}}.

-spec connect(pos_integer(), #listener{}) -> {ok, #listener{}}.
connect(_Number, Listener) -> {ok, Listener}.

-spec request(pos_integer(), #listener{}) -> {ok, iodata(), #listener{}}.
request(_Sequence, Listener) -> {ok, <<>>, Listener}.

-spec response(binary(), #listener{}) -> {ok, [weir_load_scenario:event()], #listener{}} | {error, wrong_message}.
response(Data, #listener{part = Part, clock = Clock} = Listener) ->
    messages(<<Part/binary, Data/binary>>, now(Clock), Listener, []).

messages(<<SentAt:64, _/binary>> = Bytes, Now, #listener{size = Size} = Listener, Events) when
    byte_size(Bytes) >= Size
->
    %% A time of 0 or in the future: the message size differs, or this is another server.
    case SentAt > 0 andalso SentAt =< Now of
        true ->
            <<_:Size/binary, Rest/binary>> = Bytes,
            messages(Rest, Now, Listener, [{pushed, Now - SentAt} | Events]);
        false ->
            {error, wrong_message}
    end;
messages(Bytes, _Now, Listener, Events) ->
    {ok, Events, Listener#listener{part = binary:copy(Bytes)}}.

now(system) ->
    os:system_time(nanosecond);
now(monotonic) ->
    %% Not erlang:monotonic_time/1, which has an offset of its own.
    {time, Time} = lists:keyfind(time, 1, erlang:system_info(os_monotonic_time_source)),
    erlang:convert_time_unit(Time, native, nanosecond).

-spec done(#listener{}) -> ok.
done(_Listener) -> ok.
