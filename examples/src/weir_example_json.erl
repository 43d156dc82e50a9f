%% @doc JSON for the examples: OTP's module `json' if it exists (OTP 27 and later), otherwise {@link weir_json}.
-module(weir_example_json).

-export([decode/1]).
-export([encode/1]).

%% @doc Decodes a text.
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

%% @doc Encodes a value.
-spec encode(weir_json:value()) -> iodata().
encode(Value) ->
    case has_json() of
        true -> apply(json, encode, [Value]);
        false -> weir_json:compact(Value)
    end.

has_json() -> code:ensure_loaded(json) =:= {module, json}.
