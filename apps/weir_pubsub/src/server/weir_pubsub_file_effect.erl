%% @private
%% @doc Finds settings of the configuration file of a push server that have no effect because of other settings.
-module(weir_pubsub_file_effect).

-export([http/1]).
-export([tokens/2]).

%% @doc Returns the given keys of `[http]' that have no effect, and what they need. `stream_timeout' applies to all
%% transports but polls. The other keys apply to a GET that asks for no transport.
-spec http(#{atom() => term()}) -> weir_pubsub_file_table:faults().
http(Given) ->
    Transports = maps:get(transports, Given, weir_pubsub_http:transports()),
    Plain =
        case lists:member(poll, Transports) of
            true -> maps:get(plain, Given, long_poll);
            false -> none
        end,
    [
        {[<<"http">>, atom_to_binary(Key)], What}
     || Key <- [plain, poll_answer, poll_timeout, stream_timeout],
        is_map_key(Key, Given),
        What <- missing(Key, Plain, Transports)
    ].

missing(stream_timeout, raw, _Transports) ->
    [];
missing(stream_timeout, _Plain, Transports) ->
    ["only with a transport other than \"poll\", or with plain = \"raw\"" || Transports -- [poll] =:= []];
missing(_Key, none, _Transports) ->
    ["only with \"poll\" in transports"];
missing(Key, Plain, _Transports) ->
    ["only with plain = \"long_poll\"" || Key =/= plain, Plain =/= long_poll].

%% @doc Returns the keys of `[tokens]' that have no effect: without a key that verifies tokens, all that say what
%% tokens must contain.
-spec tokens([weir_pubsub_keys:source()], #{atom() => term()}) -> weir_pubsub_file_table:faults().
tokens([], Given) ->
    [
        {[<<"tokens">>, atom_to_binary(Key)], "only with a key: secrets, public_keys or jwks"}
     || Key <- lists:sort(maps:keys(Given))
    ];
tokens(_Keys, _Given) ->
    [].
