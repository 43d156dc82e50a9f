%% @private
%% @doc Settings of the configuration file of a push server that would do nothing beside the others: who writes one expects something of it.
-module(weir_pubsub_file_effect).

-export([http/1]).
-export([tokens/2]).

%% @doc Which keys of `[http]', of those that are given, have no effect, and what they need. They are about a GET that asks for no
%% transport; `stream_timeout' is about all others.
-spec http(#{atom() => term()}) -> weir_pubsub_file_table:faults().
http(Given) ->
    Transports = maps:get(transports, Given, weir_pubsub_http:transports()),
    Plain = case lists:member(poll, Transports) of true -> maps:get(plain, Given, long_poll); false -> none end,
    [
        {[<<"http">>, atom_to_binary(Key)], What}
     || Key <- [plain, poll_answer, poll_timeout, stream_timeout], is_map_key(Key, Given), What <- missing(Key, Plain, Transports)
    ].

missing(stream_timeout, raw, _Transports) -> [];
missing(stream_timeout, _Plain, Transports) -> ["only with a transport but \"poll\", or with plain = \"raw\"" || Transports -- [poll] =:= []];
missing(_Key, none, _Transports) -> ["only with \"poll\" in transports"];
missing(Key, Plain, _Transports) -> ["only with plain = \"long_poll\"" || Key =/= plain, Plain =/= long_poll].

%% @doc Which keys of `[tokens]' have no effect: they say what a token must say, and without a key there are no tokens.
-spec tokens([weir_pubsub_keys:source()], #{atom() => term()}) -> weir_pubsub_file_table:faults().
tokens([], Given) ->
    [{[<<"tokens">>, atom_to_binary(Key)], "only with a key: secrets, public_keys or jwks"} || Key <- lists:sort(maps:keys(Given))];
tokens(_Keys, _Given) ->
    [].
