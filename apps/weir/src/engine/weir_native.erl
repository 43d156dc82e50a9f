%% @private
%% @doc Loads the native part, and keeps the reason if that fails.
%%
%% `weir_nif' may be loaded again while sockets are open. If that fails, the loaded module stays as it was. Without a
%% loaded module, or if that has no library, the new module has none either, and sockets are OTP's.
-module(weir_native).

-export([load/2]).
-export([load_error/0]).

-define(LOAD_ERROR, {weir_nif, load_error}).

%% The number of loads.
-define(LOADS, {weir_nif, loads}).

%% @doc Loads the library for the `-on_load' of the module, `weir_nif', with a fun of that module. An error ends its
%% load.
-spec load(module(), fun((file:filename()) -> ok | {error, {atom(), string()}})) -> ok | {error, {atom(), string()}}.
load(Module, Load) ->
    Loads = persistent_term:get(?LOADS, 0),
    case load_library(Module, Load, Loads) of
        ok ->
            _ = persistent_term:erase(?LOAD_ERROR),
            persistent_term:put(?LOADS, Loads + 1);
        {error, Reason} ->
            case erlang:module_loaded(Module) andalso Module:available() of
                true -> {error, explained(Reason)};
                false -> persistent_term:put(?LOAD_ERROR, explained(Reason))
            end
    end.

load_library(Module, Load, Loads) ->
    case weir_library:file(weir, Module) of
        {ok, File} -> Load(renamed(File, Loads));
        {error, _} = Error -> Error
    end.

%% dlopen(3) takes a path that it knows for the loaded library, although the file may be another one by now. So each
%% load uses another path.
renamed(File, Loads) ->
    filename:join(filename:dirname(File), lists:flatten(lists:duplicate(Loads, "./")) ++ filename:basename(File)).

%% The numbers are defined in `native/src/nif/library.rs'.
explained({What, Text}) when What =:= upgrade; What =:= load ->
    Reasons = [
        {"(1)", "the VM refused the library's resource types"},
        {"(2)", "open sockets have a different layout than in this library: restart the node to use it"},
        {"(3)", "the library cannot be kept loaded"}
    ],
    case [Reason || {Number, Reason} <- Reasons, string:find(Text, Number) =/= nomatch] of
        [Reason] -> {What, Reason};
        [] -> {What, Text}
    end;
explained(Reason) ->
    Reason.

%% @doc Returns why the native part is not loaded: the error of {@link weir_library:file/2} or {@link
%% erlang:load_nif/2}.
-spec load_error() -> {atom(), string()} | undefined.
load_error() -> persistent_term:get(?LOAD_ERROR, undefined).
