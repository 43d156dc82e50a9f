%% @private
%% @doc The native boundary. Raises `badarg' for a wrong argument. The calls have no state and do not wait.
-module(weir_toml_nif).

-on_load(load/0).

-export([decode/1]).
-export([line/2]).

-define(NOT_LOADED, erlang:nif_error({not_loaded, ?MODULE})).

load() ->
    case weir_library:file(weir_toml, ?MODULE) of
        {ok, File} -> erlang:load_nif(File, 0);
        {error, _} = Error -> Error
    end.

%% @doc See {@link weir_toml:decode/1}.
-spec decode(binary()) -> {ok, weir_toml:table()} | {error, {line, pos_integer(), binary()}}.
decode(_Bytes) -> ?NOT_LOADED.

%% @doc See {@link weir_toml:line/2}.
-spec line(binary(), weir_toml:path()) -> pos_integer().
line(_Bytes, _Path) -> ?NOT_LOADED.
