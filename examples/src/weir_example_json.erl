%% @doc JSON for the examples: OTP's module `json' where there is one (OTP 27 and later), and {@link weir_json} where not.
-module(weir_example_json).

-export([decode/1]).
-export([encode/1]).

%% @doc The value that a text is.
-spec decode(binary()) -> {ok, weir_json:value()} | error.
decode(Text) ->
    try
        case has_json() of
            true -> {ok, apply(json, decode, [Text])};
            false -> {ok, _} = weir_json:decode(Text)
        end
    catch
        error:_ -> error
    end.

%% @doc A value as a text.
-spec encode(weir_json:value()) -> iodata().
encode(Value) ->
    case has_json() of
        true -> apply(json, encode, [Value]);
        false -> weir_json:compact(Value)
    end.

has_json() -> code:ensure_loaded(json) =:= {module, json}.
