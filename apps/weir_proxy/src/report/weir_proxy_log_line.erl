%% @doc Formats the line of a session in the access log, by a format with HAProxy's fields or as a JSON object. Pure
%% functions.
-module(weir_proxy_log_line).

-include("weir_proxy_session.hrl").

-export([format/2]).
-export([text/4]).

-export_type([format/0, result/0]).

-type format() :: json | [binary() | atom()].
%% Text and names of fields, in the order of the line.

-type result() :: closed | {error, term()} | {ended, life | operator | down} | {unserved, atom()}.
%% How a session has ended. `unserved': it never had a server.

%% HAProxy's `option tcplog'.
-define(TCPLOG, <<"%ci:%cp [%t] %ft %b/%s %Tw/%Tc/%Tt %B %ts %ac/%fc/%bc/%sc/%rc %sq/%bq">>).

-define(FIELDS, [
    'Ts',
    'Tw',
    'Tc',
    'Tt',
    'ac',
    'bc',
    'bq',
    'ci',
    'cp',
    'fc',
    'ft',
    'ms',
    'rc',
    'sc',
    'si',
    'sp',
    'sq',
    'ts',
    'B',
    'H',
    'T',
    'U',
    'b',
    'f',
    's',
    't'
]).

%% @doc Checks the option `format'.
-spec format(weir_proxy_schema:path(), term()) -> format().
format(_Path, Json) when Json =:= json; Json =:= <<"json">> -> json;
format(Path, Tcplog) when Tcplog =:= haproxy; Tcplog =:= <<"haproxy">> -> fields(Path, Tcplog, ?TCPLOG, []);
format(Path, Value) ->
    Text = (weir_proxy_schema:text())(Path, Value),
    case binary:match(Text, <<"%">>) of
        nomatch -> refuse(Path, Value);
        _ -> fields(Path, Value, Text, [])
    end.

fields(Path, Value, Text, Before) ->
    case binary:split(Text, <<"%">>) of
        [Rest] ->
            lists:reverse([Rest | Before]);
        [Front, <<"%", Rest/binary>>] ->
            fields(Path, Value, Rest, [<<Front/binary, "%">> | Before]);
        [Front, Rest] ->
            %% The longest name counts, as in HAProxy: `%bi' is not `%b' followed by an `i'.
            {match, [Name, After]} = re:run(Rest, "^([A-Za-z0-9]*)(.*)$", [
                {capture, all_but_first, binary}, dotall, dollar_endonly
            ]),
            case [Field || Field <- ?FIELDS, atom_to_binary(Field) =:= Name] of
                [Field] -> fields(Path, Value, After, [Field, Front | Before]);
                [] -> refuse(Path, Value)
            end
    end.

-spec refuse(weir_proxy_schema:path(), term()) -> no_return().
refuse(Path, Value) ->
    Known = lists:join(" ", [[$%, atom_to_list(Field)] || Field <- ?FIELDS]),
    weir_proxy_schema:refuse(Path, Value, [
        "haproxy, json, or text with the fields ", Known, " and %% for a percent sign"
    ]).

%% @private
%% @doc Returns the line with its line feed.
-spec text(format(), #session{}, result(), map()) -> iodata().
text(json, Session, Result, Statistics) ->
    #{a_to_b := #{bytes := In}, b_to_a := #{bytes := Out}, first_byte_us := FirstByte} = Statistics,
    Object = weir_json:encode(#{
        time => iolist_to_binary(rfc3339(Session#session.accepted)),
        client => weir_proxy_address:to_text(Session#session.client),
        frontend => Session#session.frontend,
        backend => Session#session.backend,
        server => Session#session.server,
        address => weir_proxy_address:to_text(Session#session.address),
        queue_ms => Session#session.queued,
        connect_ms =>
            case Session#session.connected of
                none -> null;
                Connected -> Connected
            end,
        duration_ms => duration(Session, Statistics),
        first_byte_us =>
            case FirstByte of
                undefined -> null;
                _ -> FirstByte
            end,
        bytes_in => In,
        bytes_out => Out,
        retries => Session#session.retries,
        state => iolist_to_binary(state(Result, Statistics))
    }),
    %% On one line. Line feeds in strings are escaped, so these are only between tokens.
    [binary:replace(iolist_to_binary(Object), <<"\n">>, <<>>, [global]), $\n];
text(Format, Session, Result, Statistics) ->
    [
        [
            case Part of
                Text when is_binary(Text) -> Text;
                Field -> field(Field, Session, Result, Statistics)
            end
         || Part <- Format
        ],
        $\n
    ].

field(ci, #session{client = Client}, _Result, _Statistics) -> address(Client);
field(cp, #session{client = Client}, _Result, _Statistics) -> port(Client);
field(si, #session{address = Address}, _Result, _Statistics) -> address(Address);
field(sp, #session{address = Address}, _Result, _Statistics) -> port(Address);
field(t, #session{accepted = Accepted}, _Result, _Statistics) -> local_time(Accepted);
field('T', #session{accepted = Accepted}, _Result, _Statistics) -> rfc3339(Accepted);
field('Ts', #session{accepted = Accepted}, _Result, _Statistics) -> integer_to_binary(Accepted div 1000);
field(ms, #session{accepted = Accepted}, _Result, _Statistics) -> io_lib:format("~3..0b", [Accepted rem 1000]);
field('H', _Session, _Result, _Statistics) -> {ok, Name} = inet:gethostname(), Name;
field(f, #session{frontend = Frontend}, _Result, _Statistics) -> Frontend;
field(ft, #session{frontend = Frontend}, _Result, _Statistics) -> Frontend;
field(b, #session{backend = Backend}, _Result, _Statistics) -> Backend;
field(s, #session{server = Server}, _Result, _Statistics) -> Server;
field('Tw', #session{queued = Queued}, _Result, _Statistics) -> integer_to_binary(Queued);
field('Tc', #session{connected = none}, _Result, _Statistics) -> <<"-1">>;
field('Tc', #session{connected = Connected}, _Result, _Statistics) -> integer_to_binary(Connected);
field('Tt', Session, _Result, Statistics) -> integer_to_binary(duration(Session, Statistics));
field('B', _Session, _Result, #{b_to_a := #{bytes := Out}}) -> integer_to_binary(Out);
field('U', _Session, _Result, #{a_to_b := #{bytes := In}}) -> integer_to_binary(In);
field(ts, _Session, Result, Statistics) -> state(Result, Statistics);
field(ac, #session{numbers = {Frontend, _, _}}, _Result, _Statistics) -> number(Frontend, current_sessions);
field(fc, #session{numbers = {Frontend, _, _}}, _Result, _Statistics) -> number(Frontend, current_sessions);
field(bc, #session{numbers = {_, Backend, _}}, _Result, _Statistics) -> number(Backend, current_sessions);
field(sc, #session{numbers = {_, _, Server}}, _Result, _Statistics) -> number(Server, current_sessions);
field(rc, #session{retries = Retries}, _Result, _Statistics) -> integer_to_binary(Retries);
%% Servers have no queue of their own here, only backends.
field(sq, _Session, _Result, _Statistics) -> <<"0">>;
field(bq, #session{numbers = {_, Backend, _}}, _Result, _Statistics) -> number(Backend, queue_current).

number(none, _Name) -> <<"0">>;
number(Numbers, Name) -> integer_to_binary(weir_proxy_counters:get(Numbers, Name)).

address({local, _Path}) -> <<"unix">>;
address({Address, _Port}) -> inet:ntoa(Address);
address(undefined) -> <<"-">>.

port({local, Path}) -> Path;
port({_Address, Port}) -> integer_to_binary(Port);
port(undefined) -> <<"0">>.

duration(#session{connected = none}, #{duration_us := Duration}) ->
    Duration div 1000;
duration(#session{queued = Queued, connected = Connected}, #{duration_us := Duration}) ->
    Queued + Connected + Duration div 1000.

rfc3339(Milliseconds) -> calendar:system_time_to_rfc3339(Milliseconds, [{unit, millisecond}, {offset, "Z"}]).

local_time(Milliseconds) ->
    {{Year, Month, Day}, {Hour, Minute, Second}} = calendar:system_time_to_local_time(Milliseconds, millisecond),
    Name = element(Month, {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"}),
    io_lib:format("~2..0b/~s/~b:~2..0b:~2..0b:~2..0b.~3..0b", [
        Day, Name, Year, Hour, Minute, Second, Milliseconds rem 1000
    ]).

%% HAProxy's termination state: the side that ended the session, lower case for a timeout, then `D' for the data phase.
state(closed, _Statistics) -> "--";
state({unserved, Why}, _Statistics) -> unserved(Why);
state({error, timeout}, _Statistics) -> "cD";
state({ended, life}, _Statistics) -> "cD";
state({ended, operator}, _Statistics) -> "KD";
state({ended, down}, _Statistics) -> "DD";
state({error, _}, #{failed := b}) -> "SD";
state({error, _}, _Statistics) -> "CD".

%% Ended before it had a server: `R' during the rules, `Q' in the queue, `C' while connecting to a server.
unserved(gone) -> "CR";
unserved(killed) -> "cR";
unserved(Why) when Why =:= reject; Why =:= crashed -> "PR";
unserved(queue_timeout) -> "sQ";
unserved(queue_full) -> "SQ";
unserved(exhausted) -> "RC";
unserved(_NoServer) -> "SC".
