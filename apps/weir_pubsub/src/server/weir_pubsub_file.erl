%% @doc The configuration file of a push server, in TOML, read and checked as a whole. Each fault has its line, its
%% key, and what is allowed.
%%
%% The keys are described in the guide, in the page on channels.
-module(weir_pubsub_file).

-export([read/1]).
-export([defaults/0]).

-import(weir_pubsub_file_value, [
    integer/2,
    milliseconds/1,
    infinite/1,
    choice/1,
    choices/1,
    text/0,
    boolean/0,
    ip/0,
    origins/0,
    url/0,
    host/0,
    prefix/0,
    cookie/0,
    file_in/1,
    secret_in/1,
    sources/2,
    certificates_in/1
]).
-import(weir_pubsub_file_table, [section/3, several/3, table/3, unknown/1]).

-export_type([settings/0, listener/0, fault/0]).

-type listener() :: #{
    ip := inet:ip_address(),
    port := inet:port_number(),
    max_connections := pos_integer(),
    proxy_protocol := boolean(),
    tls := none | #{cert := file:filename_all(), key := file:filename_all()},
    access_log := off | #{to := {file, file:filename_all()}, format := combined | json}
}.

-type settings() :: #{
    listeners := [listener(), ...],
    drain := pos_integer(),
    spread := non_neg_integer(),
    control := none | file:filename_all(),
    transports := [weir_pubsub_http:transport()],
    plain := long_poll | interval_poll | raw,
    poll_answer := one | multipart | raw,
    origins := any | [binary()],
    poll_timeout := timeout(),
    stream_timeout := timeout(),
    deflate := boolean(),
    max_body := pos_integer(),
    status := any | local | nobody,
    mercure := none | mercure(),
    ask := none | weir_pubsub_authorizer:server(),
    rules := weir_pubsub_rules:rules(),
    keys := [weir_pubsub_keys:source()],
    tokens := weir_pubsub_token:options(),
    broker := weir_pubsub_broker:options(),
    channels := weir_pubsub_policies:configuration()
}.
%% Times are milliseconds.

-type mercure() :: #{
    anonymous => boolean(), cookie => binary(), subscriptions => boolean(), policy := weir_pubsub_policies:policy()
}.

-type fault() :: {Line :: pos_integer() | none, Text :: iodata()}.

%% @doc Reads a file. File names in it are relative to its directory. Keys are loaded once, to check them.
-spec read(file:filename_all()) -> {ok, settings()} | {error, [fault(), ...]}.
read(File) ->
    case file:read_file(File) of
        {ok, Text} -> decode(Text, filename:dirname(filename:absname(File)));
        {error, Reason} -> {error, [{none, ["cannot be read: ", file:format_error(Reason)]}]}
    end.

decode(Text, Directory) ->
    case weir_toml:decode(Text) of
        {ok, Table} ->
            case settings(Table, Directory) of
                {ok, Settings} -> {ok, Settings};
                {error, Faults} -> {error, lists:usort([located(Fault, Text) || Fault <- Faults])}
            end;
        {error, {line, Line, What}} ->
            {error, [{Line, What}]};
        {error, {too_large, Most}} ->
            {error, [{none, io_lib:format("more than ~b bytes", [Most])}]}
    end.

located({Path, What}, Text) -> {weir_toml:line(Text, Path), iolist_to_binary([place(Path), ": ", What])}.

place(Path) -> lists:join($., [step(Step) || Step <- Path]).

step(Index) when is_integer(Index) -> integer_to_binary(Index);
step(Key) -> Key.

%% @doc Returns the settings of an empty file.
-spec defaults() -> settings().
defaults() ->
    {ok, Settings} = settings(#{}, "."),
    Settings.

settings(Table, Directory) ->
    Unknown = [{[Key], unknown(sections())} || Key <- lists:sort(maps:keys(Table) -- sections())],
    {Drain, DrainFaults} = table(maps:with([<<"drain">>, <<"spread">>, <<"control">>], Table), [], #{
        <<"drain">> => {drain, milliseconds(1)},
        <<"spread">> => {spread, milliseconds(0)},
        <<"control">> => {control, file_in(Directory)}
    }),
    {Listeners, ListenerFaults} = several(<<"listeners">>, Table, listener_keys(Directory)),
    {Http, HttpFaults} = section(<<"http">>, Table, http_keys()),
    {May, MayFaults} = section(<<"may">>, Table, may_keys()),
    {Tokens, TokenFaults} = section(<<"tokens">>, Table, token_keys(Directory)),
    {Broker, BrokerFaults} = broker(Table, Directory),
    {Mercure, MercureFaults} = mercure(Table),
    {Ask, AskFaults} = ask(Table, Directory),
    {Total, TotalFaults} = section(<<"limits">>, Table, limit_keys()),
    {Groups, GroupFaults} = groups(maps:get(<<"groups">>, Table, #{})),
    {Channels, ChannelFaults} = several(<<"channels">>, Table, channel_keys()),
    Keys = maps:get(secrets, Tokens, []) ++ maps:get(public_keys, Tokens, []) ++ maps:get(jwks, Tokens, []),
    Faults = lists:append([
        Unknown,
        DrainFaults,
        ListenerFaults,
        HttpFaults,
        MayFaults,
        TokenFaults,
        BrokerFaults,
        MercureFaults,
        AskFaults,
        TotalFaults,
        GroupFaults,
        ChannelFaults,
        weir_pubsub_file_effect:http(Http)
    ]),
    Patterns = [maps:get(pattern, Channel, <<>>) || Channel <- Channels],
    Whole = #{
        channels => [
            {Pattern, maps:without([pattern, may], Channel)}
         || {Pattern, Channel} <- lists:zip(Patterns, Channels)
        ],
        groups => Groups,
        total => Total
    },
    Rules = [{Pattern, maps:get(may, Channel, #{})} || {Pattern, Channel} <- lists:zip(Patterns, Channels)],
    Settings = with_defaults(Broker, Mercure, Ask, maps:merge(Drain, Http)),
    %% Checks that need the whole file run only if all parts are valid.
    case Faults of
        [] ->
            whole(Settings, Listeners, {May, Rules}, {Keys, maps:without([secrets, public_keys, jwks], Tokens)}, Whole);
        _ ->
            {error, Faults}
    end.

sections() ->
    [
        <<"ask">>, <<"broker">>, <<"channels">>, <<"control">>, <<"drain">>, <<"groups">>,
        <<"http">>, <<"limits">>, <<"listeners">>, <<"may">>, <<"mercure">>, <<"spread">>, <<"tokens">>
    ].

with_defaults(Broker, Mercure, Ask, Given) ->
    Timeout = maps:get(drain, Given, 5000),
    maps:merge(
        #{
            drain => Timeout,
            spread => Timeout div 2,
            control => none,
            transports => weir_pubsub_http:transports(),
            plain => long_poll,
            poll_answer => one,
            origins => any,
            poll_timeout => infinity,
            stream_timeout => infinity,
            deflate => false,
            max_body => 1000000,
            status => local,
            broker => Broker,
            mercure => Mercure,
            ask => Ask
        },
        Given
    ).

whole(Settings, Given, {May, Rules}, {Keys, Tokens}, Channels) ->
    #{drain := Timeout, spread := Spread, mercure := Mercure, ask := Ask} = Settings,
    Listeners = listeners(Given),
    Faults = lists:append([
        [{[<<"spread">>], "no longer than drain"} || Spread > Timeout],
        twice(
            <<"listeners">>,
            [{Ip, Port} || #{ip := Ip, port := Port} <- Listeners],
            <<"port">>,
            "another listener has this address"
        ),
        [
            {[<<"listeners">>, Index, <<"access_log_format">>], "only with access_log"}
         || {Index, #{access_log_format := _} = Listener} <- numbered(Given), not is_map_key(access_log, Listener)
        ],
        certificates(Listeners),
        twice(<<"channels">>, [Pattern || {Pattern, _} <- Rules], <<"pattern">>, "occurs twice in the file"),
        policies(Channels, [Pattern || {Pattern, _} <- Rules]),
        keys(Keys),
        weir_pubsub_file_effect:tokens(Keys, Tokens),
        mercure_policy(Mercure),
        [
            {[<<"mercure">>], "Mercure needs a key: [tokens] with secrets, public_keys or jwks"}
         || Keys =:= [], Mercure =/= none
        ],
        [
            Fault
         || Keys =:= [],
            Fault <- without(token, "tokens need a key: [tokens] with secrets, public_keys or jwks", May, Rules)
        ],
        [Fault || Ask =:= none, Fault <- without(ask, "needs a server to ask: [ask] with url", May, Rules)]
    ]),
    case Faults of
        [] ->
            {ok, Settings#{
                listeners => Listeners,
                rules => weir_pubsub_rules:new(May, Rules),
                keys => Keys,
                tokens => Tokens,
                channels => Channels
            }};
        _ ->
            {error, Faults}
    end.

listeners([]) -> listeners([#{}]);
listeners(Given) -> [listener(Listener) || Listener <- Given].

listener(Given) ->
    #{access_log := Log, access_log_format := Format} =
        All = maps:merge(
            #{
                ip => {127, 0, 0, 1},
                port => 0,
                max_connections => 100000,
                proxy_protocol => false,
                tls => none,
                access_log => off,
                access_log_format => combined
            },
            Given
        ),
    Listener = maps:remove(access_log_format, All),
    case Log of
        off -> Listener;
        File -> Listener#{access_log := #{to => {file, File}, format => Format}}
    end.

twice(Section, Values, Key, Text) ->
    [
        {[Section, Index, Key], Text}
     || {Index, Value} <- numbered(Values), lists:member(Value, lists:sublist(Values, Index - 1))
    ].

numbered(Values) -> lists:zip(lists:seq(1, length(Values)), Values).

%% Check certificates and their keys now, not at the first handshake.
certificates(Listeners) ->
    Given = [
        {Index, Name, Files}
     || {Index, #{tls := #{cert := _, key := _} = Files}} <- numbered(Listeners), Name <- [cert, key]
    ],
    Given =:= [] orelse ({ok, _} = application:ensure_all_started(ssl)),
    [
        {[<<"listeners">>, Index, <<"tls">>, atom_to_binary(Name)], What}
     || {Index, Name, Files} <- Given, {Wrong, What} <- wrong(Files), Wrong =:= Name
    ].

wrong(#{cert := Certificate, key := Key}) ->
    case weir_listener_tls:check([{certfile, Certificate}, {keyfile, Key}]) of
        ok -> [];
        {error, {{certfile, _}, Allowed}} -> [{cert, Allowed}];
        {error, {_, Allowed}} -> [{key, Allowed}]
    end.

%% The error names the policy by its pattern; the line of a fault is found by the index of the table.
policies(Configuration, Patterns) ->
    case weir_pubsub_policies:check(Configuration) of
        ok ->
            [];
        {error, {bad_option, [channels, Pattern | Place], _Value, Allowed}} ->
            Index = length(lists:takewhile(fun(Other) -> Other =/= Pattern end, Patterns)) + 1,
            [{[<<"channels">>, Index | [atom_to_binary(Key) || Key <- Place]], Allowed}];
        {error, {bad_option, _Place, _Value, Allowed}} ->
            [{[<<"channels">>], Allowed}]
    end.

keys(Sources) ->
    case weir_pubsub_keys:check(Sources) of
        ok -> [];
        {error, {bad_key, {Kind, File}, Reason}} -> [{[<<"tokens">>, section_of(Kind)], [File, ": ", unusable(Reason)]}]
    end.

section_of(secret) -> <<"secrets">>;
section_of(public_key) -> <<"public_keys">>;
section_of(jwks) -> <<"jwks">>.

unusable(too_short) -> "a secret needs at least 32 bytes, an RSA key 2048 bits";
unusable(no_key) -> "contains no key for HS256, RS256, ES256 or EdDSA";
unusable(not_json) -> "is not a JSON Web Key Set";
unusable(Reason) -> ["cannot be read: ", file:format_error(Reason)].

without(Who, Text, May, Rules) ->
    Places = [{[<<"may">>], May} | [
        {[<<"channels">>, Index, <<"may">>], Of}
     || {Index, {_, Of}} <- numbered(Rules)
    ]],
    [
        {Place ++ [atom_to_binary(Right)], Text}
     || {Place, Of} <- Places, {Right, Whom} <- lists:sort(maps:to_list(Of)), Whom =:= Who
    ].

%% A file that names a server but no kind would silently keep channels in memory.
broker(Table, Directory) ->
    {Broker, Faults} = section(<<"broker">>, Table, broker_keys(Directory)),
    case maps:get(kind, Broker, memory) of
        memory ->
            {Broker,
                [
                    {[<<"broker">>, atom_to_binary(Key)], "only with kind = \"redis\""}
                 || Key <- maps:keys(Broker), Key =/= kind
                ] ++ Faults};
        redis ->
            {Broker, Faults}
    end.

groups(Groups) when is_map(Groups) ->
    {Values, Faults} = lists:unzip([
        begin
            {Limits, Wrong} = table(Table, [<<"groups">>, Name], limit_keys()),
            {{Name, Limits}, Wrong}
        end
     || {Name, Table} <- maps:to_list(Groups)
    ]),
    {maps:from_list(Values), lists:append(Faults)};
groups(_) ->
    {#{}, [{[<<"groups">>], "a table for each group: [groups.NAME]"}]}.

ask(#{<<"ask">> := Table}, Directory) ->
    Keys = #{
        <<"url">> => {url, url()},
        <<"ca">> => {cacerts, certificates_in(Directory)},
        <<"timeout">> => {timeout, milliseconds(1)},
        <<"cache">> => {cache, milliseconds(0)},
        <<"max_concurrent">> => {max_concurrent, integer(1, 10000)}
    },
    {Values, Faults} = table(Table, [<<"ask">>], Keys),
    Asked = maps:merge(#{timeout => 2000, cache => 10000, max_concurrent => 100}, maps:remove(url, Values)),
    case {Faults, Values} of
        {[], #{url := {Scheme, Url}}} -> trusting(Scheme, maps:merge(Url, Asked));
        {[], #{}} -> {Asked, [{[<<"ask">>], "url is missing"}]};
        _ -> {Asked, Faults}
    end;
ask(_Table, _Directory) ->
    {none, []}.

%% Check now, not at the first request, that there are certificates to verify the server with.
trusting(http, #{cacerts := _} = Asked) ->
    {Asked, [{[<<"ask">>, <<"ca">>], "only for a url with https"}]};
trusting(http, Asked) ->
    {Asked, []};
trusting(https, #{cacerts := _} = Asked) ->
    {Asked, []};
trusting(https, Asked) ->
    case weir_pubsub_authorization_request:system_certificates() of
        {ok, _} ->
            {Asked#{cacerts => system}, []};
        {error, Text} ->
            {Asked, [
                {[<<"ask">>, <<"url">>], [Text, ": set ca to a file with the certificate of the server's authority"]}
            ]}
    end.

%% The history of updates is limited by the same keys as that of a channel.
mercure(#{<<"mercure">> := Table}) ->
    Kept = [max_messages, max_bytes, max_age, max_message, max_subscribers],
    Policy = maps:from_list([{atom_to_binary(Name), {Name, fun policy_value/1}} || Name <- Kept]),
    Keys = Policy#{
        <<"anonymous">> => {anonymous, boolean()},
        <<"cookie">> => {cookie, cookie()},
        <<"subscriptions">> => {subscriptions, boolean()}
    },
    {Values, Faults} = table(Table, [<<"mercure">>], Keys),
    {(maps:without(Kept, Values))#{policy => maps:with(Kept, Values)}, Faults};
mercure(_Table) ->
    {none, []}.

mercure_policy(none) ->
    [];
mercure_policy(#{policy := Policy}) ->
    case weir_pubsub_policies:check(#{channels => [{weir_pubsub_mercure:channel(), Policy}]}) of
        ok -> [];
        {error, {bad_option, [channels, _Channel | Place], _Value, Allowed}} ->
            [{[<<"mercure">> | [atom_to_binary(Key) || Key <- Place]], Allowed}]
    end.

%% Keys -----------------------------------------------------------------------------------

listener_keys(Directory) ->
    #{
        <<"ip">> => {ip, ip()},
        <<"port">> => {port, integer(0, 65535)},
        <<"max_connections">> => {max_connections, integer(1, 10000000)},
        <<"proxy_protocol">> => {proxy_protocol, boolean()},
        <<"tls">> => {tls, fun(Value) -> tls(Value, Directory) end},
        <<"access_log">> => {access_log, file_in(Directory)},
        <<"access_log_format">> => {access_log_format, choice([combined, json])}
    }.

tls(Given, Directory) ->
    case table(Given, [], #{<<"cert">> => {cert, file_in(Directory)}, <<"key">> => {key, file_in(Directory)}}) of
        {#{cert := _, key := _} = Files, []} -> {ok, Files};
        {_, []} -> {error, "cert and key, each the name of a file"};
        {_, Faults} -> {faults, Faults}
    end.

http_keys() ->
    #{
        <<"transports">> => {transports, choices(weir_pubsub_http:transports())},
        <<"plain">> => {plain, choice([long_poll, interval_poll, raw])},
        <<"poll_answer">> => {poll_answer, choice([one, multipart, raw])},
        <<"origins">> => {origins, origins()},
        <<"poll_timeout">> => {poll_timeout, infinite(milliseconds(1))},
        <<"stream_timeout">> => {stream_timeout, infinite(milliseconds(1))},
        <<"deflate">> => {deflate, boolean()},
        <<"max_body">> => {max_body, integer(1, 1000000)},
        <<"status">> => {status, choice([any, local, nobody])}
    }.

may_keys() ->
    maps:from_list([
        {atom_to_binary(Right), {Right, choice([any, local, token, ask, nobody])}}
     || Right <- [publish, subscribe, history, presence]
    ]).

token_keys(Directory) ->
    #{
        <<"secrets">> => {secrets, sources(secret, Directory)},
        <<"public_keys">> => {public_keys, sources(public_key, Directory)},
        <<"jwks">> => {jwks, sources(jwks, Directory)},
        <<"audience">> => {audience, text()},
        <<"issuer">> => {issuer, text()},
        <<"leeway">> => {leeway, integer(0, 3600)},
        <<"require_exp">> => {require_exp, boolean()}
    }.

broker_keys(Directory) ->
    #{
        <<"kind">> => {kind, choice([memory, redis])},
        <<"host">> => {host, host()},
        <<"port">> => {port, integer(1, 65535)},
        <<"username">> => {username, text()},
        <<"password">> => {password, secret_in(Directory)},
        <<"database">> => {database, integer(0, 1 bsl 16)},
        <<"prefix">> => {prefix, prefix()}
    }.

limit_keys() ->
    maps:from_list([
        {atom_to_binary(Kind), {Kind, infinite(integer(0, 1 bsl 50))}}
     || Kind <- weir_pubsub_limits:kinds()
    ]).

%% weir_pubsub_policies checks the values.
channel_keys() ->
    Policy = maps:from_list([
        {atom_to_binary(Name), {Name, fun policy_value/1}} || Name <- weir_pubsub_policies:names()
    ]),
    Policy#{<<"pattern">> => {pattern, text()}, <<"may">> => {may, fun may/1}}.

policy_value(<<"infinity">>) -> {ok, infinity};
policy_value(<<"drop_oldest">>) -> {ok, drop_oldest};
policy_value(<<"disconnect">>) -> {ok, disconnect};
policy_value(<<"none">>) -> {ok, none};
policy_value(Value) -> {ok, Value}.

may(Table) ->
    case table(Table, [], may_keys()) of
        {May, []} -> {ok, May};
        {_, Faults} -> {faults, Faults}
    end.
